"""Stage 4: every query over its stored candidates, timed; some of them by full passes as well."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.base import BenchmarkCorpus
from experiments.reproduce.stages.candidate_pools import QUERIES_PER_PART, CandidatePools, queries_digest
from experiments.reproduce.stages.checkpoint import Arrays, compute_in_parts
from ridgerank.backbones.base import full_margins
from ridgerank.ragged import Floats
from ridgerank.scoring.shallow import ShallowPass
from ridgerank.store.sidecar import rerender_pages


@dataclass(frozen=True, slots=True, eq=False)
class CandidateStates:
    """The states of one retriever's candidates at the exit layer of a backbone."""

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
    corpus: BenchmarkCorpus,
    pools: CandidatePools,
    open_pass: Callable[[], ShallowPass],
    *,
    candidates: int,
    full_pass_every: int | None,
    done: Callable[[int], None],
) -> CandidateStates:
    """Run every query; with `full_pass_every` None nothing is timed by full passes."""

    def compute(items: range) -> Arrays:
        shallow_pass = open_pass()
        shallow_pass.run(
            corpus.queries[items[0]].text, pools.page_ids[items[0], :candidates].tolist()
        )  # warm
        rows = [_run_query(shallow_pass, corpus, pools, item, candidates, full_pass_every) for item in items]
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]}

    part_folder = folder / f"{queries_digest(corpus)}-{candidates}"
    arrays = compute_in_parts(part_folder, len(corpus.queries), QUERIES_PER_PART, compute, done=done)
    return CandidateStates(**arrays)


def run_deeper(
    folder: Path,
    corpus: BenchmarkCorpus,
    pools: CandidatePools,
    open_pass: Callable[[], ShallowPass],
    *,
    depths: tuple[int, int],
    done: Callable[[int], None],
) -> NDArray[np.float32]:
    """(queries, pages, dim): the states of the candidates from rank `depths[0]` up to `depths[1]`."""
    first, last = depths[0], min(depths[1], pools.page_ids.shape[1])

    def compute(items: range) -> Arrays:
        shallow_pass = open_pass()
        states = []
        for item in items:
            # As many at a time as a request has: memory stays what a request needs.
            pieces = [
                shallow_pass.run(
                    corpus.queries[item].text, pools.page_ids[item, start : start + first].tolist()
                )
                for start in range(first, last, first)
            ]
            states.append(np.concatenate([piece.states.cpu().numpy() for piece in pieces])[: last - first])
        return {"states": np.stack(states)}

    part_folder = folder / f"{queries_digest(corpus)}-{first}-{last}"
    return compute_in_parts(part_folder, len(corpus.queries), QUERIES_PER_PART, compute, done=done)["states"]


def _run_query(
    shallow_pass: ShallowPass,
    corpus: BenchmarkCorpus,
    pools: CandidatePools,
    item: int,
    candidates: int,
    every: int | None,
) -> Arrays:
    text, page_ids = corpus.queries[item].text, pools.page_ids[item, :candidates].tolist()
    passed = shallow_pass.run(text, page_ids)
    timed = every is not None and item % every == 0
    return {
        "states": passed.states.cpu().numpy(),
        "lens": shallow_pass.backbone.logit_lens(passed.states).cpu().numpy().astype(np.float64),
        "reading_ms": np.array(passed.reading_ms),
        "compute_ms": np.array(passed.compute_ms),
        "full_ms": np.array(_full_pass_ms(shallow_pass, text, page_ids) if timed else np.nan),
    }


def _full_pass_ms(shallow_pass: ShallowPass, text: str, page_ids: list[str]) -> float:
    """The model's time over all page images; rendering them does not count."""
    backbone = shallow_pass.backbone
    batches = rerender_pages(shallow_pass.store, page_ids, max_pixels=backbone.page_budget)
    contents = [backbone.content(page) for batch in batches for page in batch]
    start = backbone.clock()
    full_margins(backbone, text, contents)
    return 1000.0 * (backbone.clock() - start)
