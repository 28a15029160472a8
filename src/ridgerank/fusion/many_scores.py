"""Proposition 1 for any number of scores: pure formulas, proved in docs/fusion.md.

c (scores,) are the scores' correlations with relevance, Σ (scores, scores) those with each other, 1 on the
diagonal. Weights are not negative and add up to 1.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from ridgerank.ragged import Bools, Floats

_NEGLIGIBLE = 1e-12
"""Eigenvalues of Σ below this share of the largest are rounding: some scores are combinations of others."""
_SWEEPS = 2000
_CONVERGED = 1e-10
LEAST_SCORES = 3
"""A common factor shows in the correlations of three scores at least; from four on it can be contradicted."""


def fused_correlation(weights: Floats, relevance: Floats, mutual: Floats) -> Floats:
    """c'w / √(w'Σw): correlation of the weighted sum with relevance; (…, scores) twice, (…, scores, scores).

    0 where the weighted sum is constant.
    """
    variance = np.einsum("...i,...ij,...j->...", weights, mutual, weights)
    norm = np.sqrt(np.maximum(variance, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        value: Floats = np.where(norm > 0, np.einsum("...i,...i->...", weights, relevance) / norm, 0.0)
    return value


def optimal_weights(relevance: Floats, mutual: Floats) -> Floats:
    """(scores,): the weights of highest `fused_correlation`, proportional to Σ⁻¹c where that has no negative.

    In general they minimize w'Σw − 2c'w over w ≥ 0, a non-negative least squares problem ‖Fw − F⁻ᵀc‖ with
    F'F = Σ. Where no score agrees with relevance, the least wrong one is best alone.
    """
    best_alone = np.zeros(len(relevance))
    best_alone[int(np.argmax(relevance))] = 1.0
    if not relevance.max() > 0:
        return best_alone
    eigenvalues, vectors = np.linalg.eigh(mutual)
    kept = eigenvalues > _NEGLIGIBLE * eigenvalues[-1]
    roots = np.sqrt(eigenvalues[kept])
    factor = roots[:, None] * vectors[:, kept].T
    solution, _ = nnls(factor, (vectors[:, kept].T @ relevance) / roots)
    total = solution.sum()
    weights: Floats = solution / total if total > 0 else best_alone
    return weights


@dataclass(frozen=True, slots=True, eq=False)
class CommonFactor:
    """How far one common factor explains the correlations of some scores; batches in front."""

    loadings: Floats
    """(…, scores), 0 to 1: each score's correlation with the factor, taken for relevance."""
    residuals: Floats
    """(…, pairs): what is left of each pair's correlation, Σ_ij − c_i c_j for i < j."""
    defined: Bools
    """(…,): at least three scores load on the factor; fewer do not determine it."""

    @property
    def misfit(self) -> Floats:
        """(…,): root mean square of the residuals; 0 is a perfect fit, and of three scores says little."""
        value: Floats = np.sqrt((self.residuals**2).mean(axis=-1))
        return value


def fit_common_factor(mutual: Floats) -> CommonFactor:
    """Least squares of Σ_ij ≈ c_i c_j over all pairs, 0 ≤ c ≤ 1: (…, scores, scores) → (…, scores).

    §B.6 for three scores, where the fit is exact unless an estimate would exceed 1; over-determined from
    four on. Coordinate descent: each c_i in turn is the best one given the others, so the error never grows.
    """
    count = mutual.shape[-1]
    first, second = np.triu_indices(count, 1)
    distinct = mutual * (1.0 - np.eye(count))
    start = np.sqrt(np.clip(distinct.sum(axis=-1) / (count - 1), 0.01, 1.0))
    loadings = start.copy()
    for _ in range(_SWEEPS):
        before = loadings.copy()
        for score in range(count):
            others = loadings.copy()
            others[..., score] = 0.0
            squares = (others**2).sum(axis=-1)
            best = (distinct[..., score, :] * others).sum(axis=-1) / np.where(squares > 0, squares, 1.0)
            loadings[..., score] = np.clip(best, 0.0, 1.0)
        if np.abs(loadings - before).max(initial=0.0) < _CONVERGED:
            break
    residuals = mutual[..., first, second] - loadings[..., first] * loadings[..., second]
    return CommonFactor(loadings, residuals, (loadings > 0).sum(axis=-1) >= LEAST_SCORES)
