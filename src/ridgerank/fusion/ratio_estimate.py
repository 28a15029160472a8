"""The weight that a calibration deploys without judgements, or with few: from one ratio and its error.

w* depends on r = c_s / c_b and ρ alone; r = 1 gives 0.5 whatever ρ is. Without judgements r is read twice:
- from the teacher. §B.6 holds that readout and teacher agree in nothing but relevance, r = ρ_st / ρ_bt. But a
  readout is fitted to its teacher. If it misses relevance as it misses all else of its teacher, c_s = ρ_st
  c_t, and as c_t / c_b = ρ_st / ρ_bs, r = ρ_st² / ρ_bs. The lower of the two is the reading, and half of what
  they differ by counts as error. It is too high where the teacher itself is poor;
- from rarity, without the teacher. Few of a query's candidates are relevant, so relevance is skewed, and
  what two scores share of it shows in their third moments: E[b s s] / E[b b s] = c_s / c_b. Noise that is not
  skewed, or not shared, leaves no trace there.
Their average by precision is the estimate; half of what they differ by is error as well, and log r is pulled
towards 0, equal weights, by all of its error.

Before it is kept within 0 and 1 the weight is linear in (c_s − c_b) / (c_s + c_b). In that form estimates
have an error of nearly normal shape, and an estimate from few judgements is averaged with the label-free one
by their precisions. §B.6 as the paper has it is `label_free_estimate` in `estimate.py`.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from ridgerank.fusion.correlations import Correlations, ThirdMoments
from ridgerank.fusion.estimate import BEYOND_CHANCE, MOST_CERTAIN, WeightEstimate, resampled_means
from ridgerank.fusion.weight import is_interior
from ridgerank.ragged import Floats

MODEL_ERROR = 0.2
"""Standard deviation of a reading of log r besides chance and besides what readings differ by."""
UNCHECKED_ERROR = 0.5
"""Standard deviation of log r besides, where the teacher's reading stands alone: the teacher may be poor."""
BETWEEN_CORPORA = 0.7
"""Standard deviation of log r over corpora and models: it was −0.2 to 0.9 where judgements could tell."""
LEAST_RETRIEVER_RELEVANCE = 0.3
"""c_b of a retriever worth reranking: as c_b c_s = ρ_bs, c_s / c_b is at most ρ_bs over its square."""
LARGEST_MISFIT = 1.0
"""Where §B.6 and the other reading from the teacher differ by more in log r, neither is believed."""
USUAL_ERROR = 0.13
LARGEST_ERROR = 0.28
"""How far such weights were off where judgements existed, on average and at most (docs/fusion.md)."""
_ERRORS_OF_95_PERCENT = 1.96
_LEAST_QUERY_ERROR = 0.4
"""Standard error of a weight judged on one query, at least: two queries that agree by chance know little."""


@dataclass(frozen=True, slots=True)
class RatioReading:
    """log r = log c_s − log c_b as one argument reads it."""

    estimate: float
    error: float
    """Standard deviation: chance over queries, and what the argument may be off."""


@dataclass(frozen=True, slots=True)
class LogRatio:
    """log r from all readings, as estimated, and after it was pulled towards 0."""

    estimate: float
    variance: float

    @property
    def kept(self) -> float:
        """0 to 1: the share of the estimate that its error leaves."""
        return BETWEEN_CORPORA**2 / (BETWEEN_CORPORA**2 + self.variance)

    @property
    def mean(self) -> float:
        """The estimate, pulled towards 0."""
        return self.kept * self.estimate

    @property
    def error(self) -> float:
        """Standard deviation that remains."""
        return BETWEEN_CORPORA * math.sqrt(1.0 - self.kept)


@dataclass(frozen=True, slots=True)
class UnboundedWeight:
    """w* before it is kept within 0 and 1, and its standard error."""

    mean: float
    error: float

    @property
    def weight(self) -> float:
        """The weight to rank with."""
        return min(max(self.mean, 0.0), 1.0)

    @property
    def interval(self) -> tuple[float, float]:
        """95 %, within 0 and 1."""
        reach = _ERRORS_OF_95_PERCENT * self.error
        low, high = np.clip([self.mean - reach, self.mean + reach], 0.0, 1.0).tolist()
        return low, high

    def chance_of_gain(self, rho: float) -> float:
        """How likely `weight` beats the retriever alone; never 1: no number of queries makes a model true.

        It does where c_s / c_b exceeds a bound, hence where the unbounded w* exceeds that of the bound.
        """
        w = self.weight
        if w == 0.0:
            return 0.0
        norm = math.sqrt((1.0 - w) ** 2 + w**2 + 2.0 * w * (1.0 - w) * rho)
        bound = unbounded_weight(1.0, (norm - (1.0 - w)) / w, rho)
        return min(0.5 * math.erfc((bound - self.mean) / (self.error * math.sqrt(2.0))), MOST_CERTAIN)


def unbounded_weight(c_b: float, c_s: float, rho: float) -> float:
    """Eq. 4 without its bounds: ½ + ½ (c_s − c_b) / (c_s + c_b) · (1 + ρ) / (1 − ρ)."""
    return float(_unbounded(np.asarray(c_b), np.asarray(c_s), np.asarray(rho)))


def read_misfit(correlations: Correlations) -> float:
    """How far both readings from the teacher, the third vector, differ in log r; NaN where one has none."""
    return float(np.ptp(_read_teacher(correlations.stacked().mean(axis=0))))


def read_ratio_from_teacher(correlations: Correlations) -> RatioReading:
    """log r from the correlations of retriever, readout and teacher, which must all be positive."""
    rows = correlations.stacked()
    readings = _read_teacher(rows.mean(axis=0))
    bound = math.log(float(correlations.mutual.mean()) / LEAST_RETRIEVER_RELEVANCE**2)
    chance = _spread(_read_teacher(np.concatenate(list(resampled_means(rows)))).min(axis=0))
    misfit = float(np.ptp(readings)) / 2.0
    return RatioReading(min(float(readings.min()), bound), math.hypot(chance, misfit, MODEL_ERROR))


def read_ratio_from_rarity(moments: ThirdMoments) -> RatioReading | None:
    """log r from third moments; None where they are not clear of 0, as where relevance is not rare."""
    rows = moments.stacked()
    if len(rows) < 2:
        return None
    means, errors = rows.mean(axis=0), rows.std(axis=0, ddof=1) / math.sqrt(len(rows))
    if (means <= BEYOND_CHANCE * errors).any():
        return None
    draws = np.concatenate(list(resampled_means(rows)))
    with np.errstate(divide="ignore", invalid="ignore"):
        chance = _spread(np.log(draws[:, 0]) - np.log(draws[:, 1]))
    return RatioReading(math.log(means[0] / means[1]), math.hypot(chance, MODEL_ERROR))


def combine_readings(teacher: RatioReading, rarity: RatioReading | None) -> LogRatio:
    """Both readings by their precisions; half of what they differ by is error, too."""
    if rarity is None:
        return LogRatio(teacher.estimate, teacher.error**2 + UNCHECKED_ERROR**2)
    precisions = teacher.error**-2, rarity.error**-2
    total = sum(precisions)
    estimate = (precisions[0] * teacher.estimate + precisions[1] * rarity.estimate) / total
    return LogRatio(estimate, 1.0 / total + (teacher.estimate - rarity.estimate) ** 2 / 4.0)


def weigh_without_judgements(ratio: LogRatio, rho: float) -> UnboundedWeight:
    """The weight of log r at this ρ."""
    low, mean, high = (
        unbounded_weight(1.0, math.exp(ratio.mean + errors * ratio.error), rho) for errors in (-1.0, 0.0, 1.0)
    )
    return UnboundedWeight(mean, (high - low) / 2.0)


def weigh_by_judgements(judged: Correlations) -> UnboundedWeight:
    """w* of correlations with relevance, its error by resampling queries."""
    rows = judged.stacked()
    draws = np.concatenate(list(resampled_means(rows)))
    # Draws in which neither score knows relevance say nothing of a ratio; they widen the error.
    weights = _unbounded(draws[:, 0], np.maximum(draws[:, 1], 0.05 - draws[:, 0]), draws[:, 2])
    low, high = np.quantile(weights, [0.16, 0.84])
    c_b, c_s, rho = rows.mean(axis=0)
    mean = unbounded_weight(c_b, max(c_s, 0.05 - c_b), rho)
    return UnboundedWeight(mean, max(float(high - low) / 2.0, _LEAST_QUERY_ERROR / math.sqrt(len(rows))))


def average_by_precision(first: UnboundedWeight, second: UnboundedWeight) -> UnboundedWeight:
    """Two estimates of one weight, each counting by one over its squared error."""
    precisions = first.error**-2, second.error**-2
    total = sum(precisions)
    mean = (precisions[0] * first.mean + precisions[1] * second.mean) / total
    return UnboundedWeight(mean, total**-0.5)


def estimate_by_ratio(paper: WeightEstimate, ratio: LogRatio, rho: float) -> WeightEstimate:
    """The label-free weight to deploy; `paper` is §B.6 of the same scores, whose counts it keeps."""
    weight = weigh_without_judgements(ratio, rho)
    c_b, c_s = _split_product(rho, ratio.mean)
    return _fill(
        replace(paper, method="label-free", cause="", shrunk=True),
        weight,
        (c_b, c_s, rho),
        f"an estimate without judgements: c_s / c_b may be off by a factor of "
        f"{math.exp(_ERRORS_OF_95_PERCENT * ratio.error):.1f} either way. Where judgements existed, such "
        f"weights were off by {USUAL_ERROR:g} on average and {LARGEST_ERROR:g} at most; a few judgements "
        "(--qrels) make it more certain",
    )


def combine_with_judgements(
    closed_form: WeightEstimate, judged: Correlations, ratio: LogRatio, rho: float
) -> WeightEstimate:
    """Few judgements and the label-free estimate, averaged; `closed_form` is that of the judgements alone."""
    weight = average_by_precision(weigh_by_judgements(judged), weigh_without_judgements(ratio, rho))
    c_b, c_s, mutual = judged.stacked().mean(axis=0).tolist()
    contrast = float(np.clip((2.0 * weight.mean - 1.0) * (1.0 - mutual) / (1.0 + mutual), -1.0, 1.0))
    half = max(c_b + c_s, 0.05) / 2.0
    return _fill(
        replace(closed_form, method="combined", shrunk=True),
        weight,
        (half * (1.0 - contrast), half * (1.0 + contrast), mutual),
        f"{judged.queries} judged queries, averaged with the estimate without judgements",
    )


def _fill(
    estimate: WeightEstimate, weight: UnboundedWeight, correlations: tuple[float, float, float], note: str
) -> WeightEstimate:
    c_b, c_s, rho = correlations
    return replace(
        estimate,
        weight=weight.weight,
        weight_interval=weight.interval,
        c_b=c_b,
        c_s=c_s,
        rho=rho,
        interior=bool(is_interior(*map(np.asarray, correlations))),
        chance_of_gain=weight.chance_of_gain(rho),
        note=note,
    )


def _read_teacher(means: Floats) -> Floats:
    """(2, …): log r by §B.6, and if the readout misses relevance as all else, from correlations (…, 3)."""
    rho_bt, rho_st, rho_bs = np.moveaxis(means, -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.stack([np.log(rho_st / rho_bt), np.log(rho_st) + np.log(rho_st / rho_bs)])


def _spread(draws: Floats) -> float:
    """Half the width of the middle 68 %: a standard deviation that outliers do not move."""
    finite = draws[np.isfinite(draws)]
    low, high = np.quantile(finite, [0.16, 0.84]) if len(finite) else (-1.0, 1.0)
    return float(high - low) / 2.0


def _unbounded(c_b: Floats, c_s: Floats, rho: Floats) -> Floats:
    weights: Floats = 0.5 + 0.5 * (c_s - c_b) / (c_s + c_b) * (1.0 + rho) / (1.0 - rho)
    return weights


def _split_product(rho: float, log_ratio: float) -> tuple[float, float]:
    """c_b and c_s of c_b c_s = ρ and c_s / c_b = r; neither above 1."""
    root, half = math.sqrt(max(rho, 0.0)), math.exp(0.5 * log_ratio)
    return min(root / half, 1.0), min(root * half, 1.0)
