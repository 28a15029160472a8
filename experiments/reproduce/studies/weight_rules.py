"""Three ways to set the weight (§B.6): best on the next corpus, eq. 4 on the next corpus, label-free."""

from dataclasses import dataclass

import numpy as np

from experiments.protocols import draw_queries, next_in_cycle
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.studies.weight_validation import sweep_corpus
from ridgerank.fusion.correlations import correlate
from ridgerank.fusion.weight import FALLBACK_WEIGHT, fit_one_factor, optimal_weight, resolve_heywood_case
from ridgerank.ragged import Floats

FEW = 16


@dataclass(frozen=True, slots=True, eq=False)
class WeightRuleQuality:
    """nDCG@5 under each rule, macro over the corpora of a family, mean over readouts."""

    sweep: float
    closed_form: float
    label_free: float
    few: tuple[float, ...]
    """Label-free from sixteen queries per corpus, one value per draw."""
    edge: float
    """Share of corpora and readouts in which the one-factor model's estimate is above 1."""


def compare_weight_rules(analysis: Analysis, family: int, retriever: str, backbone: str) -> WeightRuleQuality:
    """One row of the table."""
    return analysis.cached(
        ("weight rules", family, retriever, backbone), lambda: _compare(analysis, family, retriever, backbone)
    )


def _compare(analysis: Analysis, family: int, retriever: str, backbone: str) -> WeightRuleQuality:
    settings, corpus_keys = analysis.settings, analysis.experiment.corpus_keys(family)
    corpora = [analysis.scored(corpus_key, retriever) for corpus_key in corpus_keys]
    swept, label_free, edges = [], [], []
    few: list[list[float]] = [[] for _ in range(settings.draws)]
    for readout, by_corpus in enumerate(analysis.scores_by_readout(family, retriever, backbone)):
        best = [
            sweep_corpus(analysis, corpus_key, retriever, backbone, readout).best
            for corpus_key in corpus_keys
        ]
        for number, (scored, scores) in enumerate(zip(corpora, by_corpus, strict=True)):
            correlations = correlate(scored.retriever, scores, scored.margins, scored.lists).stacked()
            weight, at_edge = label_free_weight(correlations.mean(axis=0))
            swept.append(float(scored.fused_ndcg(scores, next_in_cycle(best, number)).mean()))
            label_free.append(float(scored.fused_ndcg(scores, weight).mean()))
            edges.append(at_edge)
            drawn = draw_queries(len(correlations), FEW, count=settings.draws, seed=settings.seed + number)
            for quality, queries in zip(few, drawn, strict=True):
                weight, _ = label_free_weight(correlations[queries].mean(axis=0))
                quality.append(float(scored.fused_ndcg(scores, weight).mean()))
    return WeightRuleQuality(
        sweep=float(np.mean(swept)),
        closed_form=analysis.result(family, retriever, f"ours {backbone}").macro(),
        label_free=float(np.mean(label_free)),
        few=tuple(float(np.mean(quality)) for quality in few),
        edge=float(np.mean(edges)),
    )


def label_free_weight(means: Floats) -> tuple[float, bool]:
    """w from mean correlations (retriever-third, reranker-third, retriever-reranker), and if one is above 1.

    An estimate above 1 is taken for 1; where the model has no solution at all, the documented fallback.
    """
    rho_bt, rho_st, rho_bs = means
    model = fit_one_factor(rho_bs, rho_bt, rho_st)
    if bool(model.heywood):
        c_b, c_s = resolve_heywood_case(rho_bs, rho_bt, rho_st)
        return float(optimal_weight(c_b, c_s, rho_bs)), True
    if not bool(model.defined):
        return FALLBACK_WEIGHT, False
    return float(optimal_weight(model.c_b, model.c_s, rho_bs)), False
