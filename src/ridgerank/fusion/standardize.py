"""Standardization and the convex combination, eq. 1 and 2."""

import numpy as np

from ridgerank.errors import ScoreError
from ridgerank.ragged import Floats, Ragged


def standardize(values: Floats, lists: Ragged) -> Floats:
    """z(v)_i = (v_i − μ) / σ within each list, eq. 1; (members,) → (members,).

    A constant list carries no information and becomes zeros; so does a list of one.
    """
    return standardize_weighted(values, np.ones(lists.members), lists)


def standardize_weighted(values: Floats, weights: Floats, lists: Ragged) -> Floats:
    """The same in the inner product ⟨x, y⟩_ω = Σ ω_i x_i y_i / Σ ω_i, §A.1; ω > 0."""
    # A list is first mapped to [0, 1]: no rounding or overflow of its scale can then reach μ or σ,
    # and a list is constant exactly when its range is zero, never when a sum happens to round so.
    low = lists.min(values)
    with np.errstate(over="ignore"):
        width = lists.max(values) - low
    if not np.isfinite(width).all():
        raise ScoreError("scores of one list span more than a float can hold; scale them down")
    varied = width > 0
    unit = (values - lists.repeat(low)) / lists.repeat(np.where(varied, width, 1.0))
    total = lists.sum(weights)
    centered = unit - lists.repeat(lists.sum(weights * unit) / total)
    deviation = np.sqrt(lists.sum(weights * centered**2) / total)
    scaled: Floats = centered / lists.repeat(np.where(varied, deviation, 1.0))
    scaled[~lists.repeat(varied)] = 0.0
    return scaled


def standard_deviations(values: Floats, lists: Ragged) -> Floats:
    """σ of eq. 1: the standard deviation within each list, (members,) → (lists,)."""
    mean = lists.sum(values) / lists.lengths
    return np.sqrt(lists.sum((values - lists.repeat(mean)) ** 2) / lists.lengths)


def fuse_scores(retriever: Floats, reranker: Floats, weight: float, lists: Ragged) -> Floats:
    """F = (1 − w) z(b) + w z(s), eq. 2: w = 0 is the retriever alone, w = 1 the reranker alone."""
    require_weight(weight)
    return (1.0 - weight) * standardize(retriever, lists) + weight * standardize(reranker, lists)


def require_weight(weight: float) -> None:
    """Refuse a weight outside 0 to 1."""
    if not 0.0 <= weight <= 1.0:
        raise ScoreError(f"fusion weight {weight}, expected a number from 0 (retriever) to 1 (reranker)")


def fuse_many_scores(scores: Floats, weights: Floats, lists: Ragged) -> Floats:
    """F = Σ w_i z(s_i), eq. 2 for any number of scores: (scores, members), weights (scores,) → (members,)."""
    if len(weights) != len(scores) or not (weights >= 0).all() or not 0 < weights.sum() < np.inf:
        raise ScoreError(
            f"fusion weights {weights.tolist()} for {len(scores)} runs, expected one per run, none below 0 "
            "and not all 0"
        )
    shares = weights / weights.sum()
    fused: Floats = np.sum(
        [share * standardize(row, lists) for share, row in zip(shares, scores, strict=True)], axis=0
    )
    return fused


def discounts(retriever: Floats, lists: Ragged) -> Floats:
    """ω_i = 1 / log2(1 + rank_i) under the retriever's order: the discount of the ranking metric, §3.1."""
    weights: Floats = 1.0 / np.log2(1.0 + lists.ranks(retriever))
    return weights
