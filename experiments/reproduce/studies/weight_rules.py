"""Predicted against measured weights on every subset (§4.3), and three ways to set the weight (§B.6)."""

from dataclasses import dataclass

import numpy as np

from experiments.protocols import ScoredCorpus, WeightSweep, draw_queries, next_in_cycle, sweep_weights
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.experiment import CorpusKey
from ridgerank.fusion.correlations import Correlations, correlate
from ridgerank.fusion.weight import FALLBACK_WEIGHT, explain_by_one_factor, optimal_weight
from ridgerank.ragged import Bools, Floats

RESAMPLES = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Subset:
    """One method on one corpus behind one retriever; several readouts count as one subset, averaged."""

    family: int
    corpus: str
    retriever: str
    method: str
    correlations: tuple[Correlations, ...]
    """By readout."""
    varied: tuple[Bools, ...]
    """By readout, (queries,): which queries have correlations; the lists of the others do not vary."""
    sweeps: tuple[WeightSweep, ...]
    """By readout."""

    @property
    def predicted(self) -> float:
        """w* of eq. 4, read on the subset itself."""
        return float(np.mean([_weight(each.stacked().mean(axis=0)) for each in self.correlations]))

    @property
    def measured(self) -> float:
        """The mean of the weights within one point of the best."""
        return float(np.mean([sweep.optimum for sweep in self.sweeps]))

    @property
    def least_partial(self) -> float:
        """The smaller of c_b − ρc_s and c_s − ρc_b, of all readouts: above 0 the optimum is interior."""
        means = [each.stacked().mean(axis=0) for each in self.correlations]
        return float(min(min(b - rho * s, s - rho * b) for b, s, rho in means))

    def interval(self, seed: int) -> tuple[float, float]:
        """95 % of the measured weights when queries are drawn again with replacement."""
        generator = np.random.default_rng(seed)
        queries = self.sweeps[0].quality.shape[1]
        counts = generator.multinomial(queries, np.full(queries, 1.0 / queries), size=RESAMPLES) / queries
        drawn = np.mean([measured_optima(sweep, counts) for sweep in self.sweeps], axis=0)
        low, high = np.quantile(drawn, [0.025, 0.975])
        return float(low), float(high)

    def halves(self, generator: np.random.Generator) -> tuple[tuple[float, float], tuple[float, float]]:
        """(predicted, measured) on either half of the queries, split at random."""
        queries = self.sweeps[0].quality.shape[1]
        first = np.zeros(queries)
        first[generator.permutation(queries)[: queries // 2]] = 1.0
        weights = []
        for part in (first, 1.0 - first):
            measured = np.mean([measured_optima(sweep, part[None] / part.sum())[0] for sweep in self.sweeps])
            weights.append((self._predicted_on(part), float(measured)))
        return weights[0], weights[1]

    def _predicted_on(self, part: Floats) -> float:
        """w* from the queries marked with 1, those of them whose lists vary."""
        pairs = zip(self.correlations, self.varied, strict=True)
        means = [np.average(each.stacked(), axis=0, weights=part[varied]) for each, varied in pairs]
        return float(np.mean([_weight(mean) for mean in means]))


@dataclass(frozen=True, slots=True, eq=False)
class Validation:
    """All subsets together."""

    subsets: tuple[Subset, ...]
    predicted: Floats
    measured: Floats
    correlation: float
    reliability_predicted: float
    reliability_measured: float
    interior: int
    """Subsets whose predicted optimum is strictly between 0 and 1."""
    least_partial: float

    @property
    def ceiling(self) -> float:
        """The geometric mean of the reliabilities: what parallel measurements could correlate at most."""
        return float(np.sqrt(max(self.reliability_predicted, 0.0) * max(self.reliability_measured, 0.0)))


def validate(analysis: Analysis) -> Validation:
    """RidgeRank with every backbone and the cross encoder, on every corpus, behind every retriever."""
    return analysis.cached("validation", lambda: _validate(analysis))


def sweep_corpus(
    analysis: Analysis, corpus_key: CorpusKey, retriever: str, backbone: str | None, readout: int
) -> WeightSweep:
    """nDCG@5 at every weight of the grid; without a backbone, of the full cross encoder."""

    def sweep() -> WeightSweep:
        scored = analysis.scored(corpus_key, retriever)
        scores = _scores(analysis, scored, corpus_key, retriever, backbone, readout)
        return sweep_weights(lambda weight: scored.fused_ndcg(scores, weight))

    return analysis.cached(("sweep", corpus_key, retriever, backbone, readout), sweep)


def measured_optima(sweep: WeightSweep, shares: Floats) -> Floats:
    """(draws,): the measured weight when query i counts `shares[draw, i]`, which add up to 1."""
    means = shares @ sweep.quality.T
    near = means >= means.max(axis=1, keepdims=True) - 1.0
    optima: Floats = (near * sweep.weights).sum(axis=1) / near.sum(axis=1)
    return optima


def spearman_brown(correlation: float) -> float:
    """Reliability of the whole from the correlation of its halves: 2r / (1 + r)."""
    return 2.0 * correlation / (1.0 + correlation)


def split_half(subsets: tuple[Subset, ...], splits: int, seed: int) -> tuple[float, float]:
    """Reliability of predicted and of measured weights, the mean over random half splits."""
    generator = np.random.default_rng(seed)
    predicted, measured = [], []
    for _ in range(splits):
        halves = np.array([subset.halves(generator) for subset in subsets])  # (subsets, halves, kinds)
        predicted.append(_correlation(halves[:, 0, 0], halves[:, 1, 0]))
        measured.append(_correlation(halves[:, 0, 1], halves[:, 1, 1]))
    return spearman_brown(float(np.mean(predicted))), spearman_brown(float(np.mean(measured)))


def _validate(analysis: Analysis) -> Validation:
    settings, experiment = analysis.settings, analysis.experiment
    subsets = tuple(
        _subset(analysis, corpus_key, retriever, backbone)
        for corpus_key in experiment.corpus_keys()
        for retriever in settings.retrievers
        for backbone in (None, *settings.backbones)
    )
    predicted = np.array([subset.predicted for subset in subsets])
    measured = np.array([subset.measured for subset in subsets])
    reliable = split_half(subsets, settings.splits, settings.seed)
    return Validation(
        subsets=subsets,
        predicted=predicted,
        measured=measured,
        correlation=_correlation(predicted, measured),
        reliability_predicted=reliable[0],
        reliability_measured=reliable[1],
        interior=int(((predicted > 0) & (predicted < 1)).sum()),
        least_partial=min(subset.least_partial for subset in subsets),
    )


def _subset(analysis: Analysis, corpus_key: CorpusKey, retriever: str, backbone: str | None) -> Subset:
    scored = analysis.scored(corpus_key, retriever)
    count = 1 if backbone is None else len(analysis.scores(corpus_key, backbone, retriever))
    scores = [_scores(analysis, scored, corpus_key, retriever, backbone, readout) for readout in range(count)]
    relevance = scored.relevance
    return Subset(
        family=corpus_key.family,
        corpus=scored.corpus,
        retriever=retriever,
        method="full cross encoder" if backbone is None else f"RidgeRank ({backbone})",
        correlations=tuple(correlate(scored.retriever, each, relevance, scored.lists) for each in scores),
        varied=tuple(_varied(scored, each) for each in scores),
        sweeps=tuple(
            sweep_corpus(analysis, corpus_key, retriever, backbone, readout) for readout in range(count)
        ),
    )


def _scores(
    analysis: Analysis,
    scored: ScoredCorpus,
    corpus_key: CorpusKey,
    retriever: str,
    backbone: str | None,
    readout: int,
) -> Floats:
    if backbone is None:
        return scored.margins
    return np.asarray(analysis.scores(corpus_key, backbone, retriever)[readout])


def _weight(means: Floats) -> float:
    c_b, c_s, rho = means
    return float(optimal_weight(c_b, c_s, rho))


def _varied(scored: ScoredCorpus, scores: Floats) -> Bools:
    """(queries,): retriever, reranker and relevance all vary within the list, as `correlate` asks."""
    parts = (scored.retriever, scores, scored.relevance)
    varied = [scored.lists.max(part) > scored.lists.min(part) for part in parts]
    return np.asarray(np.logical_and.reduce(varied), dtype=np.bool_)


def _correlation(first: Floats, second: Floats) -> float:
    """Pearson's r, 0 where one of the two does not vary."""
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    return float(np.corrcoef(first, second)[0, 1])


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
    c_b, c_s, at_edge = explain_by_one_factor(rho_bs, rho_bt, rho_st)
    if np.isnan(c_b):
        return FALLBACK_WEIGHT, False
    return float(optimal_weight(c_b, c_s, rho_bs)), bool(at_edge)
