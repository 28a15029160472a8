"""How a baseline's scores are fused with the retriever's (§4); the weight is the best on the next corpus.

The retriever fixes the candidates, so every candidate has both scores. RRF and Score Aggregation
fuse the text retriever; trained rerankers are fused by standard scores (eq. 2), like RidgeRank's readout.
"""

import numpy as np

from experiments.baselines.fusion_baselines import reciprocal_rank_fusion, score_aggregation
from ridgerank.ragged import Floats, Ragged

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
