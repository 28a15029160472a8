"""Weights found by looking: a grid, NDCG@5 at each point, and what the paper reads off it (§4.3)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ridgerank.evaluation.metrics import evaluate
from ridgerank.fusion.baselines import reciprocal_rank_fusion, score_aggregation
from ridgerank.fusion.join import JoinedRuns, fuse_runs
from ridgerank.ragged import Floats
from ridgerank.runs.run import Qrels, Run

Fuser: TypeAlias = Callable[[JoinedRuns, float], Run]
"""Two joined runs and a weight become one run."""

GRID: Floats = np.linspace(0.0, 1.0, 21)
"""Step 0.05, as in the paper's table of full-depth fusion."""


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """Quality at each weight of a grid."""

    weights: Floats
    quality: Floats
    """(weights, queries), NDCG@5 in percent."""

    @property
    def means(self) -> Floats:
        """(weights,) mean over queries."""
        return np.asarray(self.quality.mean(axis=1))

    @property
    def best(self) -> float:
        """The weight of highest mean; of equally good ones the smallest, nearest the retriever."""
        return float(self.weights[int(np.argmax(self.means))])

    @property
    def optimum(self) -> float:
        """The empirical optimum of §4.3: the mean of the weights within one point of the best."""
        means = self.means
        return float(self.weights[means >= means.max() - 1.0].mean())


def sweep(
    joined: JoinedRuns,
    qrels: Qrels,
    *,
    fuser: Fuser = fuse_runs,
    weights: Floats = GRID,
) -> Sweep:
    """Fuse and evaluate at every weight."""
    quality = [evaluate(fuser(joined, float(w)), qrels, ("nDCG@5",)).of("nDCG@5") for w in weights]
    return Sweep(weights, np.vstack(quality))


def fuse_by_rank(joined: JoinedRuns, weight: float) -> Run:
    """Weighted reciprocal rank fusion (k = 60) of two runs; their pages are united."""
    first, second = joined.present[:2]
    scores = reciprocal_rank_fusion(
        joined.scores[0], joined.scores[1], weight, joined.lists, has_first=first, has_second=second
    )
    return joined.run(scores)


def fuse_by_aggregation(joined: JoinedRuns, weight: float) -> Run:
    """Score Aggregation (min-max, weighted sum) of two runs; their pages are united."""
    first, second = joined.present[:2]
    scores = score_aggregation(
        joined.scores[0], joined.scores[1], weight, joined.lists, has_first=first, has_second=second
    )
    return joined.run(scores)


def fuse_at_picked_weight(
    fuser: Fuser, joined: JoinedRuns, *, elsewhere: JoinedRuns, elsewhere_qrels: Qrels
) -> tuple[Run, float]:
    """A baseline at the weight that is best, by NDCG@5, on another corpus; the weight comes back too."""
    weight = sweep(elsewhere, elsewhere_qrels, fuser=fuser).best
    return fuser(joined, weight), weight
