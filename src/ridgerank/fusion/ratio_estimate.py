"""The weight without judgements that is deployed: from one ratio, with the model's own error in its interval.

w* depends on r = c_s / c_b and ρ alone: w* = (r − ρ) / ((1 + r)(1 − ρ)), and r = 1 gives 0.5 whatever ρ is.
Every target and state gives an estimate of c_b, and since c_b c_s = ρ under the one-factor model, one of
r = ρ / c_b². They differ by more than chance: a readout shares more with its teacher than relevance, which
makes r too large. So
- the highest c_b, the least r, is the estimate;
- its error has three parts: chance over queries; how far the estimates lie apart; and `MODEL_ERROR`, for what
  all of them may have in common;
- log r is pulled towards 0, equal weights, by that error against `BETWEEN_CORPORA`.
§B.6 as the paper has it is `label_free_estimate` in `estimate.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ridgerank.fusion.correlations import Correlations
from ridgerank.fusion.estimate import CONFIDENCE, WeightEstimate, resampled_means
from ridgerank.fusion.weight import fit_one_factor, is_interior, objective, optimal_weight
from ridgerank.ragged import Floats

MODEL_ERROR = 0.26
"""Standard deviation of log r besides chance: ln 1.3, the factor by which what scores of different kinds
share with a retriever beyond relevance differed where it could be measured (docs/real-documents.md)."""
UNKNOWN_SPREAD = 0.35
"""Taken for how far estimates of log r lie apart where there is one only: §B.6 of a single reading was off by
0.3 to 0.55 where judgements could tell, with the weights in docs/real-documents.md and docs/fusion.md."""
BETWEEN_CORPORA = 0.4
"""Standard deviation of log r over corpora and models: an assumption. Judged weights of 0.4 to 0.87 are log
r of about −0.1 to 0.75."""
_DEGREES = 4
"""The error's own size is known from a handful of estimates: Student's t has the tails for that."""


@dataclass(frozen=True, slots=True)
class LogRatio:
    """log r = log c_s − log c_b, as estimated, and after it was pulled towards 0."""

    estimate: float
    sampling_error: float
    """Standard error over queries."""
    model_error: float
    """Standard deviation of what the one-factor model may be off."""

    @property
    def kept(self) -> float:
        """0 to 1: the share of the estimate that its error leaves."""
        variance = self.sampling_error**2 + self.model_error**2
        return BETWEEN_CORPORA**2 / (BETWEEN_CORPORA**2 + variance)

    @property
    def mean(self) -> float:
        """The estimate, pulled towards 0."""
        return self.kept * self.estimate

    @property
    def error(self) -> float:
        """Standard deviation that remains."""
        return BETWEEN_CORPORA * float(np.sqrt(1.0 - self.kept))


def measure_log_ratio(
    correlations: Correlations, c_b: float, retriever_relevance: Sequence[float] = ()
) -> LogRatio:
    """log r of a readout from its correlations with retriever and teacher, the third vector.

    `c_b` is this reading's own estimate, `retriever_relevance` those of other readings; ρ must be positive.
    """
    estimates = np.log([c_b, *retriever_relevance])
    rho = float(correlations.mutual.mean())
    draws = np.concatenate(list(resampled_means(correlations.stacked())))
    bt, st, bs = draws.T
    model = fit_one_factor(bs, bt, st)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.log(model.c_s / model.c_b)
    spread = 2.0 * float(np.ptp(estimates)) if retriever_relevance else UNKNOWN_SPREAD
    real = ratios[np.isfinite(ratios)]
    low, high = np.quantile(real, [0.16, 0.84]) if len(real) else (-1.0, 1.0)
    return LogRatio(
        estimate=float(np.log(rho) - 2.0 * estimates.max()),
        sampling_error=float(high - low) / 2.0,
        model_error=float(np.hypot(MODEL_ERROR, spread)),
    )


def estimate_by_ratio(
    correlations: Correlations, paper: WeightEstimate, retriever_relevance: Sequence[float] = ()
) -> WeightEstimate:
    """The weight of log r, with an interval and a chance of gain that count the model's error.

    `paper` is §B.6 of the same correlations, which must have a solution.
    """
    ratio = measure_log_ratio(correlations, paper.c_b, retriever_relevance)
    weight, interval, chance = weigh_log_ratio(ratio.mean, ratio.error, correlations)
    rho = paper.rho
    c_b, c_s = split_product(rho, ratio.mean)
    return replace(
        paper,
        weight=weight,
        weight_interval=interval,
        c_b=c_b,
        c_s=c_s,
        interior=bool(is_interior(np.asarray(c_b), np.asarray(c_s), np.asarray(rho))),
        shrunk=True,
        chance_of_gain=chance,
        note="; ".join(part for part in (describe_without_judgements(ratio), paper.note) if part),
    )


def describe_without_judgements(ratio: LogRatio) -> str:
    """What a reader of a label-free weight has to know, in plain words."""
    return (
        "an estimate without judgements: it rests on a model that may not hold, and its interval allows for "
        f"c_s / c_b being off by a factor of {np.exp(1.96 * ratio.error):.1f} either way; a few judgements "
        "(--qrels) make it certain"
    )


def weigh_log_ratio(
    mean: float, error: float, correlations: Correlations
) -> tuple[float, tuple[float, float], float]:
    """Weight, its 95 % interval and the chance of a gain over the retriever, from log r and its error.

    ρ varies with resampled queries. The chance is never 0 or 1: no number of draws makes a model certain.
    """
    rho = float(correlations.mutual.mean())
    weight = float(optimal_weight(np.asarray(1.0), np.asarray(np.exp(mean)), np.asarray(rho)))
    rhos: Floats = np.concatenate(list(resampled_means(correlations.stacked())))[:, 2]
    scale = error * np.sqrt((_DEGREES - 2) / _DEGREES)
    ratios = np.exp(mean + scale * np.random.default_rng(1).standard_t(_DEGREES, size=len(rhos)))
    ones = np.ones_like(ratios)
    weights = optimal_weight(ones, ratios, rhos)
    gains = objective(np.asarray(weight), ones, ratios, rhos) - 1.0
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(weights, [tail, 1.0 - tail])
    chance = (float((gains > 0).sum()) + 0.5) / (len(gains) + 1.0)
    return weight, (float(low), float(high)), chance


def split_product(rho: float, log_ratio: float) -> tuple[float, float]:
    """c_b and c_s of c_b c_s = ρ and c_s / c_b = r; neither above 1."""
    root = float(np.sqrt(max(rho, 0.0)))
    half = float(np.exp(0.5 * log_ratio))
    return min(root / half, 1.0), min(root * half, 1.0)
