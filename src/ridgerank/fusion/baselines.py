"""The two fusions the paper compares with: by reciprocal rank and by min-max scores. Formulas only."""

import numpy as np

from ridgerank.ragged import Bools, Floats, Ragged

RECIPROCAL_RANK_CONSTANT = 60.0


def reciprocal_rank_fusion(
    first: Floats, second: Floats, weight: float, lists: Ragged, *, has_first: Bools, has_second: Bools
) -> Floats:
    """(1 − w)/(k + rank₁) + w/(k + rank₂) with k = 60; a list that lacks a page adds nothing for it.

    w = 1/2 is the usual unweighted form up to a factor.
    """
    return (1.0 - weight) * _reciprocal_ranks(first, lists, has_first) + weight * _reciprocal_ranks(
        second, lists, has_second
    )


def score_aggregation(
    first: Floats, second: Floats, weight: float, lists: Ragged, *, has_first: Bools, has_second: Bools
) -> Floats:
    """(1 − w) m(b) + w m(s), m the min-max scaling to [0, 1] over the pages a list holds.

    A page that a list lacks counts as that list's lowest, which is what min-max scaling means by 0.
    """
    return (1.0 - weight) * _scale_to_unit(first, lists, has_first) + weight * _scale_to_unit(
        second, lists, has_second
    )


def _reciprocal_ranks(scores: Floats, lists: Ragged, present: Bools) -> Floats:
    ranks = lists.ranks(np.where(present, scores, -np.inf))
    return np.where(present, 1.0 / (RECIPROCAL_RANK_CONSTANT + ranks), 0.0)


def _scale_to_unit(scores: Floats, lists: Ragged, present: Bools) -> Floats:
    low = lists.min(np.where(present, scores, np.inf))
    high = lists.max(np.where(present, scores, -np.inf))
    varied = high > low
    width = np.where(varied, high - low, 1.0)
    floor = np.where(np.isfinite(low), low, 0.0)
    scaled = (np.where(present, scores, 0.0) - lists.repeat(floor)) / lists.repeat(width)
    return np.where(present, scaled, 0.0)
