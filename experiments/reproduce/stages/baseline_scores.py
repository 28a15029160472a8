"""Stage 6: the scores of the baselines, timed query by query."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.baselines.base import Baseline, Unavailable
from experiments.baselines.cross_encoders import FullDepthBaseline
from experiments.baselines.gqr import GRID, STEPS, GuidedQueryRefinement
from experiments.datasets.base import BenchmarkCorpus
from experiments.reproduce.stages.checkpoint import Arrays, compute_in_parts, is_complete
from experiments.reproduce.stages.retrieval import QUERIES_PER_PART, CandidatePools, queries_digest
from ridgerank.ragged import Floats
from ridgerank.records import Candidate

LoadBaseline = Callable[[Path], Baseline | Unavailable]
"""Makes the baseline, which may keep what it computes in the folder given."""


@dataclass(frozen=True, slots=True, eq=False)
class BaselineScores:
    """What one baseline says of one retriever's candidates."""

    name: str
    scores: Floats
    """(queries, candidates); of GQR, which searches by itself, (queries, settings, pages), −∞ for no page."""
    page_ids: NDArray[np.str_]
    """(queries, candidates): what was scored."""
    latency_ms: Floats
    """(queries,): the baseline's time, NaN where it was not timed; of GQR (queries, settings)."""


def run_baseline(
    folder: Path,
    corpus: BenchmarkCorpus,
    pools: CandidatePools,
    load: LoadBaseline,
    shared: Path,
    *,
    candidates: int,
    full_pass_every: int | None,
    done: Callable[[int], None],
) -> BaselineScores | Unavailable:
    """Score every query's candidates; a baseline that cannot run says why, and is tried again next time.

    A baseline that reads a page once for all its queries saves the results in `shared`; it is timed on every
    `full_pass_every`-th query with an empty cache, or not at all.
    """
    part_folder = folder / f"{queries_digest(corpus)}-{candidates}"
    count = len(corpus.queries)
    name_file = part_folder / "name"
    baseline: Baseline | Unavailable | None = None
    if not is_complete(part_folder, count, QUERIES_PER_PART):
        baseline = load(shared)
        if isinstance(baseline, Unavailable):
            return baseline
        part_folder.mkdir(parents=True, exist_ok=True)
        name_file.write_text(baseline.name)

    def compute(items: range) -> Arrays:
        assert isinstance(baseline, Baseline)
        if isinstance(baseline, GuidedQueryRefinement):
            return _search(baseline, {item: corpus.queries[item].text for item in items})
        candidates_of = {corpus.queries[item].text: pools.of(item, candidates) for item in items}
        if isinstance(baseline, FullDepthBaseline):
            scores: Mapping[str, Floats] = baseline.score_many(candidates_of)
            timed = [
                corpus.queries[item].text
                for item in items
                if full_pass_every is not None and item % full_pass_every == 0
            ]
            seconds = _time_queries(load, timed, candidates_of)
        else:
            scores, seconds = {}, {}
            for text, pool in candidates_of.items():
                start = time.perf_counter()
                scores[text] = baseline.score(text, pool)
                seconds[text] = time.perf_counter() - start
        texts = [corpus.queries[item].text for item in items]
        return {
            "scores": np.stack([scores[text] for text in texts]),
            "page_ids": pools.page_ids[items.start : items.stop, :candidates],
            "latency_ms": np.array([1000.0 * seconds.get(text, np.nan) for text in texts]),
        }

    arrays = compute_in_parts(part_folder, count, QUERIES_PER_PART, compute, done=done)
    return BaselineScores(name_file.read_text(), arrays["scores"], arrays["page_ids"], arrays["latency_ms"])


def _search(baseline: GuidedQueryRefinement, texts: Mapping[int, str]) -> Arrays:
    """What GQR finds by itself, under every setting: its pool does not depend on the number of candidates.

    Its time depends on the steps alone: queries are timed at each number of steps in turn.
    """
    width = 2 * baseline.settings.pool
    page_ids = np.full((len(texts), width), "", dtype="U64")
    scores = np.full((len(texts), len(GRID), width), -np.inf)
    latency_ms = np.full((len(texts), len(GRID)), np.nan)
    for row, (item, text) in enumerate(texts.items()):
        pool, by_setting = baseline.search_grid(text)
        page_ids[row, : len(pool)] = pool
        scores[row, :, : len(pool)] = by_setting
        timed = STEPS[item % len(STEPS)]
        start = time.perf_counter()
        baseline.search(text, steps=timed)
        milliseconds = 1000.0 * (time.perf_counter() - start)
        latency_ms[row, [steps == timed for _, steps in GRID]] = milliseconds
    return {"scores": scores, "page_ids": page_ids, "latency_ms": latency_ms}


def _time_queries(
    load: LoadBaseline, texts: Sequence[str], candidates_of: Mapping[str, Sequence[Candidate]]
) -> dict[str, float]:
    """Seconds of single queries, by a baseline that has nothing cached."""
    seconds = {}
    for text in texts:
        with tempfile.TemporaryDirectory() as fresh:
            baseline = load(Path(fresh))
            assert isinstance(baseline, Baseline)
            start = time.perf_counter()
            baseline.score(text, candidates_of[text])
            seconds[text] = time.perf_counter() - start
    return seconds
