"""Stage 4: every query over its stored candidates, timed; every so many-th one by full passes as well."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.base import Corpus
from experiments.reproduce.stages.candidate_pools import QUERIES_A_PART, Pools, queries_digest
from experiments.reproduce.stages.checkpoint import Arrays, in_parts
from ridgerank.backbones.full_depth import full_margins
from ridgerank.ragged import Floats
from ridgerank.ranking.shallow import ShallowPass
from ridgerank.store.rerender import rerender_pages


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """One retriever's candidates as a backbone sees them at the exit layer."""

    states: NDArray[np.float32]
    """(queries, candidates, dim)."""
    lens: Floats
    """(queries, candidates): the logit lens of the states."""
    reading_ms: Floats
    """(queries,)."""
    compute_ms: Floats
    """(queries,)."""
    full_ms: Floats
    """(queries,): full passes over the candidates' images, NaN where they were not timed."""


def run_states(
    folder: Path,
    corpus: Corpus,
    pools: Pools,
    shallow: Callable[[], ShallowPass],
    *,
    candidates: int,
    full_pass_every: int | None,
    done: Callable[[int], None],
) -> States:
    """Run every query; with `full_pass_every` None nothing is timed by full passes."""

    def make(items: range) -> Arrays:
        running = shallow()
        running.run(corpus.queries[items[0]].text, pools.page_ids[items[0], :candidates].tolist())  # warm
        rows = [_one(running, corpus, pools, item, candidates, full_pass_every) for item in items]
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]}

    named = folder / f"{queries_digest(corpus)}-{candidates}"
    kept = in_parts(named, len(corpus.queries), QUERIES_A_PART, make, done=done)
    return States(**kept)


def run_deeper(
    folder: Path,
    corpus: Corpus,
    pools: Pools,
    shallow: Callable[[], ShallowPass],
    *,
    depths: tuple[int, int],
    done: Callable[[int], None],
) -> NDArray[np.float32]:
    """(queries, pages, dim): the states of the candidates from place `depths[0]` up to `depths[1]`."""
    first, last = depths[0], min(depths[1], pools.page_ids.shape[1])

    def make(items: range) -> Arrays:
        running = shallow()
        states = []
        for item in items:
            # As many at a time as a request has: memory stays what a request needs.
            pieces = [
                running.run(corpus.queries[item].text, pools.page_ids[item, start : start + first].tolist())
                for start in range(first, last, first)
            ]
            states.append(np.concatenate([piece.states.cpu().numpy() for piece in pieces])[: last - first])
        return {"states": np.stack(states)}

    named = folder / f"{queries_digest(corpus)}-{first}-{last}"
    return in_parts(named, len(corpus.queries), QUERIES_A_PART, make, done=done)["states"]


def _one(
    running: ShallowPass, corpus: Corpus, pools: Pools, item: int, candidates: int, every: int | None
) -> Arrays:
    text, page_ids = corpus.queries[item].text, pools.page_ids[item, :candidates].tolist()
    ran = running.run(text, page_ids)
    timed = every is not None and item % every == 0
    return {
        "states": ran.states.cpu().numpy(),
        "lens": running.backbone.logit_lens(ran.states).cpu().numpy().astype(np.float64),
        "reading_ms": np.array(ran.reading_ms),
        "compute_ms": np.array(ran.compute_ms),
        "full_ms": np.array(_full_pass_ms(running, text, page_ids) if timed else np.nan),
    }


def _full_pass_ms(running: ShallowPass, text: str, page_ids: list[str]) -> float:
    """The model's time over all page images; rendering them does not count."""
    backbone = running.backbone
    batches = rerender_pages(running.store, page_ids, max_pixels=backbone.max_pixels)
    contents = [backbone.content(page) for batch in batches for page in batch]
    start = time.perf_counter()
    full_margins(backbone, text, contents)
    return 1000.0 * (time.perf_counter() - start)
