"""One weight per corpus, read on the next corpus of its benchmark in cyclic order (§4)."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from experiments.protocols.scored_corpus import ScoredCorpus, next_in_cycle
from experiments.protocols.weight_sweep import sweep_weights
from ridgerank.fusion.correlations import correlate
from ridgerank.fusion.weight import optimal_weight
from ridgerank.ragged import Floats, Ragged

Fusion: TypeAlias = Callable[[Floats, Floats, float, Ragged], Floats]
"""Retriever scores, other scores (both (candidates,)), weight of the others, lists → fused scores."""
WeightRule: TypeAlias = Callable[[ScoredCorpus, Floats], float]
"""A corpus and the scores of its candidates (candidates,) → the weight of these scores."""


def closed_form_weight(scored: ScoredCorpus, scores: Floats) -> float:
    """w* of eq. 4 from the correlations averaged over a corpus' queries, with its judgements."""
    correlations = correlate(scored.retriever, scores, scored.relevance, scored.lists)
    correlations.require_queries()
    c_b, c_s, rho = correlations.stacked().mean(axis=0)
    return float(optimal_weight(c_b, c_s, rho))


def best_weight(fusion: Fusion) -> WeightRule:
    """The rule that takes the weight of highest mean nDCG@5; of equally good ones the smallest."""

    def sweep(scored: ScoredCorpus, scores: Floats) -> float:
        return sweep_weights(
            lambda weight: scored.ndcg(fusion(scored.retriever, scores, weight, scored.lists))
        ).best

    return sweep


def cyclic_weights(
    corpora: Sequence[ScoredCorpus], scores: Sequence[Floats], rule: WeightRule = closed_form_weight
) -> list[float]:
    """The weight each corpus is ranked with: that of the one after it; after the last comes the first."""
    weights = [rule(scored, values) for scored, values in zip(corpora, scores, strict=True)]
    return [next_in_cycle(weights, number) for number in range(len(corpora))]
