"""How a baseline's scores are fused with the retriever's (§4); the weight is the best on the next corpus.

The retriever fixes the candidates, so every candidate has both scores. RRF and Score Aggregation fuse the
text retriever; trained rerankers are fused by standard scores (eq. 2), like RidgeRank's readout.
"""

import numpy as np

from ridgerank.ragged import Bools, Floats, Ragged

RECIPROCAL_RANK_CONSTANT = 60.0


def reciprocal_rank_fusion(
    first: Floats, second: Floats, weight: float, lists: Ragged, *, has_first: Bools, has_second: Bools
) -> Floats:
    """(1 − w)/(k + rank₁) + w/(k + rank₂) with k = 60; a list that lacks a page adds nothing for it.

    w = 1/2 is the usual unweighted form up to a factor. Pages of equal score share the mean of the ranks they
    take up: nothing but the scores orders a list.
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
    ranks = _mean_ranks(np.where(present, scores, -np.inf), lists)
    return np.where(present, 1.0 / (RECIPROCAL_RANK_CONSTANT + ranks), 0.0)


def _mean_ranks(scores: Floats, lists: Ragged) -> Floats:
    """Rank from 1 within the list, highest score first; equal scores get the mean of their ranks."""
    numbers, ranks = lists.list_numbers(), lists.ranks(scores)
    order = np.lexsort((ranks, numbers))
    starts = np.ones(lists.members, dtype=np.bool_)
    starts[1:] = (np.diff(numbers[order]) != 0) | (scores[order][1:] != scores[order][:-1])
    tied = np.cumsum(starts) - 1
    means = np.bincount(tied, weights=ranks[order]) / np.bincount(tied)
    mean_ranks: Floats = np.empty(lists.members)
    mean_ranks[order] = means[tied]
    return mean_ranks


def _scale_to_unit(scores: Floats, lists: Ragged, present: Bools) -> Floats:
    low = lists.min(np.where(present, scores, np.inf))
    high = lists.max(np.where(present, scores, -np.inf))
    varied = high > low
    width = np.where(varied, high - low, 1.0)
    floor = np.where(np.isfinite(low), low, 0.0)
    scaled = (np.where(present, scores, 0.0) - lists.repeat(floor)) / lists.repeat(width)
    return np.where(present, scaled, 0.0)


_TIE_STEP = 1e-15
"""Per rank: below every difference of two reciprocal ranks, above the rounding of their sums."""


def fuse_by_rank(retriever: Floats, scores: Floats, weight: float, lists: Ragged) -> Floats:
    """RRF: (1 − w)/(60 + rank by the retriever) + w/(60 + rank by the scores), ranks among the candidates.

    Equal scores share their mean rank; pages whose sums are equal, as those that swap ranks at w = 1/2, keep
    the retriever's order.
    """
    present = np.ones(lists.members, dtype=np.bool_)
    fused = reciprocal_rank_fusion(retriever, scores, weight, lists, has_first=present, has_second=present)
    return fused - _TIE_STEP * lists.ranks(retriever)


def fuse_by_min_max(retriever: Floats, scores: Floats, weight: float, lists: Ragged) -> Floats:
    """Score Aggregation: (1 − w) m(b) + w m(s), m the min-max scaling over the candidates."""
    present = np.ones(lists.members, dtype=np.bool_)
    return score_aggregation(retriever, scores, weight, lists, has_first=present, has_second=present)
