"""Stage 6: the scores of the other arms, timed query by query."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ridgerank.evaluation.arms.base import Arm, Unavailable
from ridgerank.evaluation.arms.full_depth import FullDepth
from ridgerank.evaluation.datasets.base import Corpus
from ridgerank.evaluation.reproduce.stages.candidates import QUERIES_A_PART, Pools, queries_digest
from ridgerank.evaluation.reproduce.stages.parts import Arrays, complete, in_parts
from ridgerank.lists import Floats
from ridgerank.records import Candidate

LoadArm = Callable[[Path], Arm | Unavailable]
"""Makes the arm, which may keep what it computes in the folder given."""


@dataclass(frozen=True, slots=True, eq=False)
class ArmScores:
    """What one arm says of one retriever's candidates."""

    name: str
    scores: Floats
    """(queries, candidates)."""
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
            "latency_ms": np.array([1000.0 * seconds.get(text, np.nan) for text in texts]),
        }

    kept = in_parts(named, count, QUERIES_A_PART, make, done=done)
    return ArmScores(name_file.read_text(), kept["scores"], kept["latency_ms"])


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
