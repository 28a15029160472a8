"""One weight a corpus, read on the next corpus of its benchmark in cyclic order (§4)."""

from collections.abc import Sequence

import numpy as np

from experiments.protocols.scored_corpus import Scored, next_in_cycle
from ridgerank.fusion.correlations import correlate
from ridgerank.fusion.weight import optimal_weight
from ridgerank.ragged import Floats


def own_weight(scored: Scored, scores: Floats) -> float:
    """w* of eq. 4 from the correlations averaged over a corpus' queries, with its judgements."""
    correlations = correlate(scored.retriever, scores, scored.relevance, scored.lists)
    correlations.require_queries()
    c_b, c_s, rho = correlations.stacked().mean(axis=0)
    return float(optimal_weight(c_b, c_s, rho))


def cyclic_weights(corpora: Sequence[Scored], scores: Sequence[Floats]) -> list[float]:
    """The weight each corpus is ranked with: w* of the one that follows it, the first follows the last."""
    return [
        own_weight(next_in_cycle(corpora, number), next_in_cycle(scores, number))
        for number in range(len(corpora))
    ]


def sweep_quality(scored: Scored, scores: Floats, weights: Floats) -> Floats:
    """(weights, queries): nDCG@5 in percent of the fused ranking at every weight of a grid."""
    from ridgerank.fusion.standardize import fuse

    return np.stack([scored.ndcg(fuse(scored.retriever, scores, float(w), scored.lists)) for w in weights])
