"""λ by judgements and by the teacher alone (§B.4), and what λ and w are worth around their values (§4.5)."""

from dataclasses import dataclass

import numpy as np

from experiments.protocols.labelled_penalty import choose_penalty_by_relevance
from experiments.protocols.leave_one_out import corpus_moments, fit_without_each
from experiments.protocols.weight_sweep import WeightSweep, sweep_weights
from experiments.reproduce.analysis import Analysis
from ridgerank.ragged import Floats
from ridgerank.readout.ridge import PenaltyChoice


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
