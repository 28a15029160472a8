"""Stages 4 and 5: every query over its candidates, timed, and the calibration sample at every layer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.base import BenchmarkCorpus
from experiments.reproduce.stages.checkpoint import Arrays, compute_in_parts, short_digest
from experiments.reproduce.stages.retrieval import QUERIES_PER_PART, CandidatePools, queries_digest
from ridgerank.backbones.base import Backbone, full_margins
from ridgerank.backbones.decoder import Prefix
from ridgerank.lineage import Keep
from ridgerank.ragged import Floats
from ridgerank.records import Page
from ridgerank.scoring.shallow import ShallowPass
from ridgerank.store.codec import StoredPrefixes, compress
from ridgerank.store.page_store import PageStore
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


_PAGES_PER_PART = 32


def run_layers(
    folder: Path,
    store: str,
    queries: Sequence[str],
    page_ids: NDArray[np.str_],
    backbone: Callable[[], Backbone],
    keep: Keep,
    *,
    done: Callable[[int], None],
) -> NDArray[np.float32]:
    """(queries, candidates, layers, dim): the state after 1, 2, … layers over the compressed page.

    Each page is encoded once, at full depth, for all its queries; `page_ids` is (queries, candidates).
    """
    pages = np.unique(page_ids)

    def compute(items: range) -> Arrays:
        model = backbone()
        positions: list[list[int]] = []
        states: list[NDArray[np.float32]] = []
        with PageStore.open(store) as opened:
            of_part = pages[items.start : items.stop].tolist()
            for batch in rerender_pages(opened, of_part, max_pixels=model.page_budget):
                contents = [model.content(page) for page in batch]
                encoded = model.encode(contents, exit_layer=model.geometry.layers)
                for page, prefix in zip(batch, encoded, strict=True):
                    of_page = np.argwhere(page_ids == page.page_id)
                    positions += of_page.tolist()
                    texts = [queries[number] for number in of_page[:, 0].tolist()]
                    states.append(_states_by_layer(model, texts, prefix, page, keep))
        return {"places": np.array(positions, dtype=np.int64), "states": np.concatenate(states)}

    part_folder = folder / short_digest([str(keep), *queries, *page_ids.ravel().tolist()])
    arrays = compute_in_parts(part_folder, len(pages), _PAGES_PER_PART, compute, done=done)
    states = np.empty((*page_ids.shape, *arrays["states"].shape[1:]), dtype=np.float32)
    states[tuple(arrays["places"].T)] = arrays["states"]
    return states


def _states_by_layer(
    model: Backbone, queries: Sequence[str], prefix: Prefix, page: Page, keep: Keep
) -> NDArray[np.float32]:
    """(queries, layers, dim)."""
    layers = []
    for depth in range(1, model.geometry.layers + 1):
        cut = replace(prefix, keys=prefix.keys[:depth], values=prefix.values[:depth])
        packed = compress(cut, keep)
        stored = StoredPrefixes([packed], device=model.device)
        layers.append(model.states(queries, stored).cpu().numpy())
    return np.stack(layers, axis=1)
