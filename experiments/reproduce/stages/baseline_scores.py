"""Stage 6: the scores of the other arms, timed query by query."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.baselines.base import Arm, Unavailable
from experiments.baselines.full_depth import FullDepth
from experiments.baselines.gqr import GuidedQueryRefinement
from experiments.datasets.base import Corpus
from experiments.reproduce.stages.candidate_pools import QUERIES_A_PART, Pools, queries_digest
from experiments.reproduce.stages.checkpoint import Arrays, complete, in_parts
from ridgerank.ragged import Floats
from ridgerank.records import Candidate

LoadArm = Callable[[Path], Arm | Unavailable]
"""Makes the arm, which may keep what it computes in the folder given."""


@dataclass(frozen=True, slots=True, eq=False)
class ArmScores:
    """What one arm says of one retriever's candidates."""

    name: str
    scores: Floats
    """(queries, candidates); of an arm that finds pages itself (queries, pages), −∞ where there is none."""
    page_ids: NDArray[np.str_]
    """(queries, candidates): what was scored."""
    latency_ms: Floats
    """(queries,): the arm's own time, NaN where it was not timed."""


def run_arm(
    folder: Path,
    corpus: Corpus,
    pools: Pools,
    load: LoadArm,
    shared: Path,
    *,
    candidates: int,
    full_pass_every: int | None,
    done: Callable[[int], None],
) -> ArmScores | Unavailable:
    """Score every query's candidates; an arm that cannot run says why, and is tried again next time.

    An arm that reads a page once for all its queries does so, into `shared`; it is timed on every so many-th
    query, where it has nothing to fall back on, or not at all.
    """
    named = folder / f"{queries_digest(corpus)}-{candidates}"
    count = len(corpus.queries)
    name_file = named / "name"
    arm: Arm | Unavailable | None = None
    if not complete(named, count, QUERIES_A_PART):
        arm = load(shared)
        if isinstance(arm, Unavailable):
            return arm
        named.mkdir(parents=True, exist_ok=True)
        name_file.write_text(arm.name)

    def make(items: range) -> Arrays:
        assert isinstance(arm, Arm)
        if isinstance(arm, GuidedQueryRefinement):
            return _searched(arm, [corpus.queries[item].text for item in items])
        asked = {corpus.queries[item].text: pools.of(item, candidates) for item in items}
        if isinstance(arm, FullDepth):
            scores: Mapping[str, Floats] = arm.score_many(asked)
            timed = [
                corpus.queries[item].text
                for item in items
                if full_pass_every is not None and item % full_pass_every == 0
            ]
            seconds = _times(load, timed, asked)
        else:
            scores, seconds = {}, {}
            for text, own in asked.items():
                start = time.perf_counter()
                scores[text] = arm.score(text, own)
                seconds[text] = time.perf_counter() - start
        texts = [corpus.queries[item].text for item in items]
        return {
            "scores": np.stack([scores[text] for text in texts]),
            "page_ids": pools.page_ids[items.start : items.stop, :candidates],
            "latency_ms": np.array([1000.0 * seconds.get(text, np.nan) for text in texts]),
        }

    kept = in_parts(named, count, QUERIES_A_PART, make, done=done)
    return ArmScores(name_file.read_text(), kept["scores"], kept["page_ids"], kept["latency_ms"])


def _searched(arm: GuidedQueryRefinement, texts: Sequence[str]) -> Arrays:
    """What GQR finds by itself: its pool, which does not depend on the number of candidates."""
    width = 2 * arm.settings.pool
    page_ids = np.full((len(texts), width), "", dtype="U64")
    scores = np.full((len(texts), width), -np.inf)
    seconds = []
    for row, text in enumerate(texts):
        start = time.perf_counter()
        found = arm.search(text)
        seconds.append(time.perf_counter() - start)
        page_ids[row, : len(found)] = [one.page_id for one in found]
        scores[row, : len(found)] = [one.score for one in found]
    return {"scores": scores, "page_ids": page_ids, "latency_ms": 1000.0 * np.array(seconds)}


def _times(load: LoadArm, texts: Sequence[str], asked: Mapping[str, Sequence[Candidate]]) -> dict[str, float]:
    """Seconds of single queries, of an arm that remembers nothing."""
    seconds = {}
    for text in texts:
        with tempfile.TemporaryDirectory() as fresh:
            arm = load(Path(fresh))
            assert isinstance(arm, Arm)
            start = time.perf_counter()
            arm.score(text, asked[text])
            seconds[text] = time.perf_counter() - start
    return seconds
