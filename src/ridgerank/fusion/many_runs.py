"""Proposition 1 for any number of scores: weights from judgements, proved in docs/fusion.md."""

import numpy as np
from scipy.optimize import nnls

from ridgerank.errors import CalibrationError
from ridgerank.fusion.standardize import discounts, standardize_weighted
from ridgerank.ragged import Floats, Ragged

_NEGLIGIBLE = 1e-12
"""Eigenvalues of Σ below this share of the largest are rounding: some scores are combinations of others."""


def judged_weights(
    scores: Floats, relevance: Floats, lists: Ragged, *, discounted: bool = True
) -> tuple[Floats, int]:
    """The weights of highest correlation with relevance, (scores,), and how many queries they rest on.

    Scores are (scores, members), relevance (members,). Correlations (eq. 3) are taken per query and averaged;
    queries in which a score or relevance is constant are left out. `discounted` weighs positions by the
    ranking metric's discount under the order of the first score.
    """
    columns = np.vstack([scores, relevance])
    varied = np.all([lists.max(column) > lists.min(column) for column in columns], axis=0)
    if not varied.any():
        raise CalibrationError(
            f"none of {len(lists)} queries can be used: in each a score or relevance is constant; expected "
            "at least one query whose lists vary"
        )
    kept, members = lists.select(varied)
    omega = (discounts(scores[0], lists) if discounted else np.ones(lists.members))[members]
    z = np.column_stack([standardize_weighted(column[members], omega, kept) for column in columns])
    products = omega[:, None, None] * z[:, :, None] * z[:, None, :]
    correlations = (kept.sum(products) / kept.sum(omega)[:, None, None]).mean(axis=0)
    return optimal_weights(correlations[:-1, -1], correlations[:-1, :-1]), len(kept)


def optimal_weights(relevance: Floats, mutual: Floats) -> Floats:
    """(scores,): the weights w of highest correlation c'w / √(w'Σw); not negative, they add up to 1.

    c (scores,) are the scores' correlations with relevance, Σ (scores, scores) those with each other. The
    weights are proportional to Σ⁻¹c if that has no negative. In general they minimize w'Σw − 2c'w over w ≥ 0,
    a non-negative least squares problem ‖Fw − F⁻ᵀc‖ with F'F = Σ. If no score agrees with relevance, the
    least wrong one is best alone.
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
