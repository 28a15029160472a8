"""Weights found by trying: a grid, NDCG@5 at each point, and what the paper reads off it (§4.3)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ridgerank.ragged import Floats

GRID: Floats = np.linspace(0.0, 1.0, 21)
"""Step 0.05, as in the paper's table of full-depth fusion."""


@dataclass(frozen=True, slots=True, eq=False)
class WeightSweep:
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


def sweep_weights(quality_at: Callable[[float], Floats], weights: Floats = GRID) -> WeightSweep:
    """Evaluate every weight; `quality_at` gives nDCG@5 of every query (queries,) at a weight."""
    return WeightSweep(weights, np.stack([quality_at(float(weight)) for weight in weights]))
