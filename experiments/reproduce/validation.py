"""§4.3: predicted against measured weights on every subset, and how reliable either is."""

from dataclasses import dataclass

import numpy as np

from experiments.protocols.scored_corpus import Scored
from experiments.protocols.weight_sweep import GRID, Sweep
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.experiment import Site
from experiments.reproduce.protocol.cyclic_weights import sweep_quality
from ridgerank.fusion.correlations import Correlations, correlate
from ridgerank.fusion.weight import optimal_weight
from ridgerank.ragged import Bools, Floats

RESAMPLES = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Subset:
    """One arm on one corpus behind one retriever; several readouts count as one subset, averaged."""

    family: int
    corpus: str
    retriever: str
    arm: str
    correlations: tuple[Correlations, ...]
    """By readout."""
    speaking: tuple[Bools, ...]
    """By readout, (queries,): whose correlations these are; the others' lists do not vary."""
    sweeps: tuple[Sweep, ...]
    """By readout."""

    @property
    def predicted(self) -> float:
        """w* of eq. 4, read on the subset itself."""
        return float(np.mean([_weight(own.stacked().mean(axis=0)) for own in self.correlations]))

    @property
    def measured(self) -> float:
        """The mean of the weights within one point of the best."""
        return float(np.mean([sweep.optimum for sweep in self.sweeps]))

    @property
    def least_partial(self) -> float:
        """The smaller of c_b − ρc_s and c_s − ρc_b, of all readouts: above 0 the optimum is interior."""
        means = [own.stacked().mean(axis=0) for own in self.correlations]
        return float(min(min(b - rho * s, s - rho * b) for b, s, rho in means))

    def interval(self, seed: int) -> tuple[float, float]:
        """95 % of the measured weights when queries are drawn again with replacement."""
        generator = np.random.default_rng(seed)
        queries = self.sweeps[0].quality.shape[1]
        counts = generator.multinomial(queries, np.full(queries, 1.0 / queries), size=RESAMPLES) / queries
        drawn = np.mean([optima(sweep, counts) for sweep in self.sweeps], axis=0)
        low, high = np.quantile(drawn, [0.025, 0.975])
        return float(low), float(high)

    def halves(self, generator: np.random.Generator) -> tuple[tuple[float, float], tuple[float, float]]:
        """(predicted, measured) on either half of the queries, split at random."""
        queries = self.sweeps[0].quality.shape[1]
        first = np.zeros(queries)
        first[generator.permutation(queries)[: queries // 2]] = 1.0
        found = []
        for part in (first, 1.0 - first):
            measured = np.mean([optima(sweep, part[None] / part.sum())[0] for sweep in self.sweeps])
            found.append((self._predicted_on(part), float(measured)))
        return found[0], found[1]

    def _predicted_on(self, part: Floats) -> float:
        """w* from the queries marked with 1, those of them that speak."""
        found = zip(self.correlations, self.speaking, strict=True)
        means = [np.average(own.stacked(), axis=0, weights=part[speaks]) for own, speaks in found]
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
    """Every arm of ours and the cross encoder, on every corpus, behind every retriever."""
    return analysis.once("validation", lambda: _validate(analysis))


def swept(analysis: Analysis, site: Site, retriever: str, backbone: str | None, readout: int) -> Sweep:
    """nDCG@5 at every weight of the grid; without a backbone, of the full cross encoder."""

    def make() -> Sweep:
        scored = analysis.scored(site, retriever)
        scores = _scores(analysis, scored, site, retriever, backbone, readout)
        return Sweep(GRID, sweep_quality(scored, scores, GRID))

    return analysis.once(("sweep", site, retriever, backbone, readout), make)


def optima(sweep: Sweep, shares: Floats) -> Floats:
    """(draws,): the measured weight when query i counts `shares[draw, i]`, which add up to 1."""
    means = shares @ sweep.quality.T
    near = means >= means.max(axis=1, keepdims=True) - 1.0
    found: Floats = (near * sweep.weights).sum(axis=1) / near.sum(axis=1)
    return found


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
    settings, lab = analysis.settings, analysis.lab
    subsets = tuple(
        _subset(analysis, site, retriever, backbone)
        for site in lab.sites()
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


def _subset(analysis: Analysis, site: Site, retriever: str, backbone: str | None) -> Subset:
    scored = analysis.scored(site, retriever)
    count = 1 if backbone is None else len(analysis.scores(site, backbone, retriever))
    scores = [_scores(analysis, scored, site, retriever, backbone, readout) for readout in range(count)]
    relevance = scored.relevance
    return Subset(
        family=site.family,
        corpus=scored.corpus,
        retriever=retriever,
        arm="full cross encoder" if backbone is None else f"RidgeRank ({backbone})",
        correlations=tuple(correlate(scored.retriever, own, relevance, scored.lists) for own in scores),
        speaking=tuple(_speaking(scored, own) for own in scores),
        sweeps=tuple(swept(analysis, site, retriever, backbone, readout) for readout in range(count)),
    )


def _scores(
    analysis: Analysis, scored: Scored, site: Site, retriever: str, backbone: str | None, readout: int
) -> Floats:
    if backbone is None:
        return scored.margins
    return np.asarray(analysis.scores(site, backbone, retriever)[readout])


def _weight(means: Floats) -> float:
    c_b, c_s, rho = means
    return float(optimal_weight(c_b, c_s, rho))


def _speaking(scored: Scored, scores: Floats) -> Bools:
    """(queries,): retriever, reranker and relevance all vary within the list, as `correlate` asks."""
    parts = (scored.retriever, scores, scored.relevance)
    varied = [scored.lists.max(own) > scored.lists.min(own) for own in parts]
    return np.asarray(np.logical_and.reduce(varied), dtype=np.bool_)


def _correlation(first: Floats, second: Floats) -> float:
    """Pearson's r, 0 where one of the two does not vary."""
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    return float(np.corrcoef(first, second)[0, 1])
