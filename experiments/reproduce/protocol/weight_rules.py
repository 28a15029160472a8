"""Three ways to set the weight (§B.6): by looking, by eq. 4 on the next corpus, without any judgement."""

from dataclasses import dataclass

import numpy as np

from experiments.protocols.scored_corpus import Scored, next_in_cycle
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.protocol.query_draws import draws
from experiments.reproduce.validation import swept
from ridgerank.fusion.correlations import Correlations, correlate
from ridgerank.fusion.estimate import FALLBACK_WEIGHT
from ridgerank.fusion.standardize import fuse
from ridgerank.fusion.weight import on_the_edge, one_factor, optimal_weight
from ridgerank.ragged import Floats

FEW = 16


@dataclass(frozen=True, slots=True, eq=False)
class Weighing:
    """nDCG@5, macro over the corpora of a family, mean over readouts."""

    sweep: float
    closed_form: float
    label_free: float
    few: tuple[float, ...]
    """Label-free from sixteen queries a corpus, one figure a draw."""
    edge: float
    """Share of corpora and readouts in which the one-factor model's estimate is above 1."""


def weigh(analysis: Analysis, family: int, retriever: str, backbone: str) -> Weighing:
    """One line of the table."""
    settings, sites = analysis.settings, analysis.lab.sites(family)
    corpora = [analysis.scored(site, retriever) for site in sites]
    by_readout = analysis.ours(family, retriever, backbone)
    looked, free, edges = [], [], []
    few: list[list[float]] = [[] for _ in range(settings.draws)]
    for readout, scores in enumerate(by_readout):
        best = [swept(analysis, site, retriever, backbone, readout).best for site in sites]
        thirds = [
            correlate(own.retriever, mine, own.margins, own.lists)
            for own, mine in zip(corpora, scores, strict=True)
        ]
        for number, (scored, own) in enumerate(zip(corpora, scores, strict=True)):
            looked.append(_quality(scored, own, next_in_cycle(best, number)))
            weight, at_edge = label_free_weight(thirds[number].stacked().mean(axis=0))
            free.append(_quality(scored, own, weight))
            edges.append(at_edge)
            for draw, drawn in enumerate(_drawn(thirds[number], settings.draws, settings.seed + number)):
                few[draw].append(_quality(scored, own, label_free_weight(drawn)[0]))
    return Weighing(
        sweep=float(np.mean(looked)),
        closed_form=analysis.line(family, retriever, f"ours {backbone}").macro(),
        label_free=float(np.mean(free)),
        few=tuple(float(np.mean(own)) for own in few),
        edge=float(np.mean(edges)),
    )


def label_free_weight(means: Floats) -> tuple[float, bool]:
    """w from mean correlations (retriever-third, reranker-third, retriever-reranker) and if one is above 1.

    An estimate above 1 is taken for 1; where the model has no solution at all, the documented fallback.
    """
    rho_bt, rho_st, rho_bs = means
    model = one_factor(rho_bs, rho_bt, rho_st)
    if bool(model.beyond_one):
        c_b, c_s = on_the_edge(rho_bs, rho_bt, rho_st)
        return float(optimal_weight(c_b, c_s, rho_bs)), True
    if not bool(model.defined):
        return FALLBACK_WEIGHT, False
    return float(optimal_weight(model.c_b, model.c_s, rho_bs)), False


def _drawn(thirds: Correlations, count: int, seed: int) -> list[Floats]:
    rows = thirds.stacked()
    return [rows[chosen].mean(axis=0) for chosen in draws(len(rows), FEW, count=count, seed=seed)]


def _quality(scored: Scored, scores: Floats, weight: float) -> float:
    return float(scored.ndcg(fuse(scored.retriever, scores, weight, scored.lists)).mean())
