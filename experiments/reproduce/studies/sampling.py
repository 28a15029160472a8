"""Rules for λ (§B.4, §4.5), and how many unlabelled queries a readout needs (§B.3)."""

from dataclasses import dataclass

import numpy as np

from experiments.protocols import (
    ScoredCorpus,
    WeightSweep,
    choose_penalty_by_relevance,
    corpus_moments,
    draw_queries,
    fit_without_each,
    sweep_weights,
)
from experiments.reproduce.analysis import Analysis
from ridgerank.evaluation.metrics import MEASURES
from ridgerank.ragged import Floats
from ridgerank.readout import CenteredMoments, PenaltyChoice, ridge_path


@dataclass(frozen=True, slots=True, eq=False)
class PenaltyRule:
    """What one rule chooses, and the calibration sample at the λ it deploys."""

    choice: PenaltyChoice
    ndcg: tuple[Floats, ...]
    """Corpus by corpus, (queries,) nDCG@5 in percent."""

    @property
    def quality(self) -> float:
        """nDCG@5, macro over corpora."""
        return float(np.mean([values.mean() for values in self.ndcg]))


def compare_penalty_rules(analysis: Analysis, backbone: str) -> dict[str, PenaltyRule]:
    """`judgements` and `teacher` → what the rule deploys."""

    def compare() -> dict[str, PenaltyRule]:
        samples, weight = analysis.samples(backbone), analysis.settings.sample_weight
        choices = {
            "judgements": choose_penalty_by_relevance(samples, weight=weight),
            "teacher": analysis.readouts(backbone).choice,
        }
        return {
            rule: PenaltyRule(choice, sample_ndcg(analysis, backbone, choice.deployed))
            for rule, choice in choices.items()
        }

    return analysis.cached(("penalty rules", backbone), compare)


def sample_ndcg(analysis: Analysis, backbone: str, penalty: float) -> tuple[Floats, ...]:
    """The calibration sample, each corpus left out, at one λ: (queries,) nDCG@5 corpus by corpus."""
    samples, weight = analysis.samples(backbone), analysis.settings.sample_weight
    moments = {sample.corpus: corpus_moments(sample) for sample in samples}
    vectors = fit_without_each(moments, dict.fromkeys(moments, penalty))
    return tuple(
        sample.fused_ndcg(sample.states @ vector, weight)
        for sample, vector in zip(samples, vectors, strict=True)
    )


def sweep_sample(analysis: Analysis, backbone: str) -> WeightSweep:
    """nDCG@5 on the calibration sample at every weight, (weights, corpora)."""
    samples, vectors = analysis.samples(backbone), analysis.readouts(backbone).vectors
    scores = [sample.states @ vector for sample, vector in zip(samples, vectors, strict=True)]
    pairs = list(zip(samples, scores, strict=True))
    return sweep_weights(
        lambda weight: np.array([sample.fused_ndcg(values, weight).mean() for sample, values in pairs])
    )


SIZES = (2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True, eq=False)
class FewQueries:
    """nDCG@5 on the calibration sample, macro over the corpora left out."""

    sizes: tuple[int, ...]
    quality: Floats
    """(sizes, draws)."""
    everything: float
    """With every query of the other corpora."""

    def share(self, size: int) -> float:
        """Mean quality with `size` queries, in percent of that with all."""
        return 100.0 * float(self.quality[self.sizes.index(size)].mean()) / self.everything


def study_few_queries(analysis: Analysis, backbone: str) -> FewQueries:
    """Draw queries at random from the corpora that a fold is fitted on; fit at the λ that is deployed."""
    return analysis.cached(("few", backbone), lambda: _study(analysis, backbone))


def refined_on_sample(analysis: Analysis) -> float | None:
    """GQR on the same queries, None where it did not run."""
    method = analysis.result(0, analysis.settings.retrievers[0], "GQR")
    row = MEASURES.index("nDCG@5")
    means = [
        float(result.values[row][chosen].mean())
        for result, chosen in zip(method.by_corpus, analysis.sample, strict=False)
    ]
    return float(np.mean(means)) if means else None


def _study(analysis: Analysis, backbone: str) -> FewQueries:
    settings = analysis.settings
    samples, readouts = analysis.samples(backbone), analysis.readouts(backbone)
    penalty, weight = np.array([readouts.choice.deployed]), settings.sample_weight
    least = min(sum(len(other.queries) for other in samples if other is not left_out) for left_out in samples)
    sizes = tuple(size for size in SIZES if size <= least)
    quality = np.zeros((len(sizes), settings.draws))
    for left_out, sample in enumerate(samples):
        others = [other for number, other in enumerate(samples) if number != left_out]
        lists = [(other, number) for other in others for number in range(len(other.queries))]
        for row, size in enumerate(sizes):
            drawn = draw_queries(len(lists), size, count=settings.draws, seed=settings.seed + left_out)
            for column, chosen in enumerate(drawn):
                [vector] = ridge_path(_moments([lists[row] for row in chosen]), penalty)
                quality[row, column] += _quality(sample, vector, weight) / len(samples)
    whole = [
        _quality(sample, vector, weight) for sample, vector in zip(samples, readouts.vectors, strict=True)
    ]
    return FewQueries(sizes, quality, float(np.mean(whole)))


def _moments(lists: list[tuple[ScoredCorpus, int]]) -> CenteredMoments:
    moments = CenteredMoments(lists[0][0].states.shape[1])
    for sample, number in lists:
        start, end = sample.lists.offsets[number : number + 2].tolist()
        moments.add(sample.states[start:end], sample.margins[start:end])
    return moments


def _quality(sample: ScoredCorpus, vector: Floats, weight: float) -> float:
    return float(sample.fused_ndcg(sample.states @ vector, weight).mean())
