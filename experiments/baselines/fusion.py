"""How a baseline's scores are fused with the retriever's (§4); the weight is the best on the next corpus.

The retriever fixes the candidates, so every candidate has both scores. RRF and Score Aggregation fuse the
text retriever; trained rerankers are fused by standard scores (eq. 2), like RidgeRank's readout.
"""

import numpy as np

from ridgerank.ragged import Floats, Ragged

RECIPROCAL_RANK_CONSTANT = 60.0


_TIE_STEP = 1e-15
"""Per rank: below every difference of two reciprocal ranks, above the rounding of their sums."""


def fuse_by_rank(retriever: Floats, scores: Floats, weight: float, lists: Ragged) -> Floats:
    """RRF: (1 − w)/(60 + rank by the retriever) + w/(60 + rank by the scores), ranks among the candidates.

    Equal scores share their mean rank; pages whose sums are equal, as those that swap ranks at w = 1/2, keep
    the retriever's order.
    """
    first, second = (
        1.0 / (RECIPROCAL_RANK_CONSTANT + _mean_ranks(each, lists)) for each in (retriever, scores)
    )
    return (1.0 - weight) * first + weight * second - _TIE_STEP * lists.ranks(retriever)


def fuse_by_min_max(retriever: Floats, scores: Floats, weight: float, lists: Ragged) -> Floats:
    """Score Aggregation: (1 − w) m(b) + w m(s), m the min-max scaling over the candidates."""
    return (1.0 - weight) * _scale_to_unit(retriever, lists) + weight * _scale_to_unit(scores, lists)


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


def _scale_to_unit(scores: Floats, lists: Ragged) -> Floats:
    low, high = lists.min(scores), lists.max(scores)
    width = np.where(high > low, high - low, 1.0)
    scaled: Floats = (scores - lists.repeat(low)) / lists.repeat(width)
    return scaled
