"""How a baseline's scores join the retriever's (§4): a formula, and a weight picked on the inner corpus.

The retriever fixes the candidates, so both scores are there for every one of them. RRF and Score Aggregation
fuse with the text retriever; rerankers that were trained on judgements are fused like RidgeRank's own score.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from experiments.protocols.scored_corpus import Scored
from experiments.protocols.weight_sweep import GRID
from ridgerank.fusion.baselines import reciprocal_rank_fusion, score_aggregation
from ridgerank.fusion.standardize import fuse
from ridgerank.ragged import Floats, Ragged

Fusion: TypeAlias = Callable[[Floats, Floats, float, Ragged], Floats]
"""Retriever scores, arm scores (both (candidates,)), the arm's weight and the lists → fused scores."""


def by_rank(retriever: Floats, arm: Floats, weight: float, lists: Ragged) -> Floats:
    """RRF: (1 − w)/(60 + rank of the retriever) + w/(60 + rank of the arm), ranks among the candidates."""
    there = np.ones(lists.members, dtype=np.bool_)
    return reciprocal_rank_fusion(retriever, arm, weight, lists, has_first=there, has_second=there)


def by_aggregation(retriever: Floats, arm: Floats, weight: float, lists: Ragged) -> Floats:
    """Score Aggregation: (1 − w) m(b) + w m(s), m the min-max scaling over the candidates."""
    there = np.ones(lists.members, dtype=np.bool_)
    return score_aggregation(retriever, arm, weight, lists, has_first=there, has_second=there)


def by_standard_score(retriever: Floats, arm: Floats, weight: float, lists: Ragged) -> Floats:
    """Eq. 2: (1 − w) z(b) + w z(s)."""
    return fuse(retriever, arm, weight, lists)


def picked_weight(fusion: Fusion, inner: Scored, arm: Floats, *, weights: Floats = GRID) -> float:
    """The weight of highest mean nDCG@5 on the inner corpus; of equally good ones the smallest."""
    means = [
        float(inner.ndcg(fusion(inner.retriever, arm, float(weight), inner.lists)).mean())
        for weight in weights
    ]
    return float(weights[int(np.argmax(means))])
