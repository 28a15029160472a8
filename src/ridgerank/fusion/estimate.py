"""Estimates of the weight: from judgements, by §B.6, and the one that calibration deploys without judgements.

With few queries the three correlations are noise, and the weight computed from them can rank far below the
retriever alone. Shrinking pulls each correlation towards a prior by their precisions: a handful of
queries moves the weight a little, a hundred leave nothing of the prior.

Calibration deploys a weight from one ratio and its error. w* depends on r = c_s / c_b and ρ alone; r = 1
gives 0.5 whatever ρ is. Without judgements r is read twice:
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
by their precisions.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from ridgerank.fusion.correlations import Correlations, is_constant
from ridgerank.fusion.standardize import standardize_weighted
from ridgerank.fusion.weight import (
    WeightEstimate,
    fit_one_factor,
    is_interior,
    objective,
    optimal_weight,
    resolve_heywood_case,
)
from ridgerank.ragged import Floats, Ragged

FALLBACK_WEIGHT = 0.2
"""Deployed, and said so, where no weight can be estimated. Near the retriever's end even a reranker that
ranks badly alone tends to help (proposition 1), and a useless one costs little."""
RESAMPLES = 1000
CONFIDENCE = 0.95
BEYOND_CHANCE = 2.58
"""Standard errors: of scores that know nothing of each other, one pair in two hundred gets past this."""
MOST_CERTAIN = 0.995
"""The largest chance of a gain without judgements: no number of queries makes a model true."""
PRIOR: Floats = np.array([0.4, 0.1, 0.25])
"""c_b, c_s and ρ of a reranker that adds nothing to the retriever (c_s = ρ c_b, a weight of 0): the
retriever's order is left only as far as queries support it."""
_PRIOR_BETWEEN_CORPORA = 0.1
_PRIOR_BETWEEN_QUERIES = 0.25
"""Assumed spreads of the correlations, the latter with twenty candidates."""
_SPREAD_DEGREES = 4
"""How many queries' worth of trust the prior spread between queries deserves."""
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
_WITHIN_REACH = 0.05
"""Share of the resamples in which the one-factor model must have a solution to be called unrefuted."""
_BLOCK = 1 << 21
"""Resampled queries drawn at a time: the bootstrap's memory, whatever the number of queries."""

RatioReading: TypeAlias = tuple[float, float]
"""log r = log c_s − log c_b as one argument reads it, and its standard deviation."""


def closed_form_estimate(correlations: Correlations, *, shrink: bool = False) -> WeightEstimate:
    """w* of eq. 4 from correlations with relevance; `shrink` pulls them towards the prior."""
    correlations.require_queries()
    share = prior_share(correlations) if shrink else np.zeros(3)
    mean = _shrink(correlations.stacked().mean(axis=0), share)
    c_b, c_s, rho = mean
    weight = float(optimal_weight(c_b, c_s, rho))

    def resampled(means: Floats) -> tuple[Floats, Floats]:
        b, s, r = _shrink(means, share).T
        return optimal_weight(b, s, r), objective(np.asarray(weight), b, s, r) - b

    interval, chance, _ = _bootstrap(correlations, resampled)
    estimate = WeightEstimate(
        weight=weight,
        weight_interval=interval,
        method="closed-form",
        queries_used=correlations.queries,
        queries_skipped=correlations.skipped,
        shrunk=shrink,
        chance_of_gain=chance,
    )
    note = _few_queries(correlations, shrunk=shrink)
    return _with_correlations(estimate, (float(c_b), float(c_s), float(rho)), note)


def label_free_estimate(correlations: Correlations, *, shrink: bool = False) -> WeightEstimate:
    """The weight of §B.6: c_b and c_s from the correlations of three scores, no relevance judgement read.

    `correlations` has the full-depth margin as its third vector. Where the one-factor model has no
    solution the weight is `FALLBACK_WEIGHT`; method and note then say so. An estimate above 1 that chance
    explains is not such a case: a score nearly as good as relevance gives one in every other sample. It is
    taken for 1, and the note says so.
    """
    correlations.require_queries()
    share = prior_share(correlations) if shrink else np.zeros(3)
    mean = _shrink(correlations.stacked().mean(axis=0), share)
    rho_bt, rho_st, rho_bs = mean
    model = fit_one_factor(rho_bs, rho_bt, rho_st)
    at_edge = bool(model.heywood) and _chance_explains(correlations)
    if not bool(model.defined) and not at_edge:
        return _fallback(correlations, mean, heywood=bool(model.heywood), shrunk=shrink)
    c_b, c_s = resolve_heywood_case(rho_bs, rho_bt, rho_st) if at_edge else (model.c_b, model.c_s)
    weight = float(optimal_weight(c_b, c_s, rho_bs))

    def resampled(means: Floats) -> tuple[Floats, Floats]:
        bt, st, bs = _shrink(means, share).T
        draws = fit_one_factor(bs, bt, st)
        b, s = draws.c_b, draws.c_s
        weights = np.where(draws.defined, optimal_weight(b, s, bs), np.nan)
        return weights, objective(np.asarray(weight), b, s, bs) - b

    interval, chance, undefined = _bootstrap(correlations, resampled)
    note = _few_queries(correlations, shrunk=shrink)
    if at_edge:
        note = f"{note} a score is as good as relevance itself, as far as these queries can tell.".strip()
    if undefined:
        note = f"{note} the one-factor model has no solution in {undefined:.0%} of the resamples".strip()
    estimate = WeightEstimate(
        weight=weight,
        weight_interval=interval,
        method="label-free",
        queries_used=correlations.queries,
        queries_skipped=correlations.skipped,
        shrunk=shrink,
        chance_of_gain=min(chance, MOST_CERTAIN),
    )
    return _with_correlations(estimate, (float(c_b), float(c_s), float(rho_bs)), note)


def _with_correlations(
    estimate: WeightEstimate, estimated: tuple[float, float, float], note: str
) -> WeightEstimate:
    c_b, c_s, rho = estimated
    interior = bool(is_interior(*map(np.asarray, estimated)))
    return replace(estimate, c_b=c_b, c_s=c_s, rho=rho, interior=interior, note=note)


def _chance_explains(correlations: Correlations) -> bool:
    """Whether an estimate above 1 may be chance.

    Every correlation must be clear of 0 (a ratio of noise can be anything), and the model must have a
    solution in some of the resamples.
    """
    rows = correlations.stacked()
    if len(rows) < 2:
        return False
    errors = rows.std(axis=0, ddof=1) / np.sqrt(len(rows))
    if (rows.mean(axis=0) <= BEYOND_CHANCE * errors).any():
        return False
    bt, st, bs = resampled_means(rows).T
    return bool(fit_one_factor(bs, bt, st).defined.mean() >= _WITHIN_REACH)


def _fallback(correlations: Correlations, mean: Floats, *, heywood: bool, shrunk: bool) -> WeightEstimate:
    rho_bt, rho_st, rho_bs = mean.tolist()
    measured = f"retriever-reranker {rho_bs:.3f}, retriever-third {rho_bt:.3f}, reranker-third {rho_st:.3f}"
    reason = "not all three correlations are positive"
    if heywood:
        reason = "an estimate exceeds 1, so the scores share more than relevance"
    cause = f"the one-factor model does not fit ({measured}): {reason}"
    return WeightEstimate(
        FALLBACK_WEIGHT,
        (0.0, 1.0),
        "prior",
        rho=rho_bs,
        queries_used=correlations.queries,
        queries_skipped=correlations.skipped,
        shrunk=shrunk,
        note=(
            f"{cause}; the weight is a cautious default, not an estimate. Give relevance judgements, or a "
            "third score that agrees with both"
        ),
        cause=cause,
    )


def _bootstrap(
    correlations: Correlations, resampled: Callable[[Floats], tuple[Floats, Floats]]
) -> tuple[tuple[float, float], float, float]:
    """Percentile interval of the weight, share of resamples with a gain, share without a weight."""
    rows = correlations.stacked()
    if len(rows) < 2:
        return (0.0, 1.0), float("nan"), 0.0
    weights, gains = resampled(resampled_means(rows))
    defined = ~np.isnan(weights)
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(weights[defined], [tail, 1.0 - tail]) if defined.any() else (0.0, 1.0)
    chance = float(np.mean(gains[defined] > 0)) if defined.any() else float("nan")
    return (float(low), float(high)), chance, float(np.mean(~defined))


def resampled_means(rows: Floats) -> Floats:
    """Means over query sets drawn with replacement: (queries, columns) → (resamples, columns)."""
    generator = np.random.default_rng(0)  # fixed: the same runs give the same interval
    block = max(1, min(RESAMPLES, _BLOCK // len(rows)))
    sizes = [min(block, RESAMPLES - start) for start in range(0, RESAMPLES, block)]
    draws = [rows[generator.integers(len(rows), size=(size, len(rows)))].mean(axis=1) for size in sizes]
    return np.concatenate(draws)


def prior_share(correlations: Correlations) -> Floats:
    """(3,) in (0, 1]: the prior's share in the shrunk correlations, by the two precisions.

    σ²/n against τ²: σ² the spread between queries (the sample's, steadied by the prior's when there are few),
    τ² the spread between corpora.
    """
    rows = correlations.stacked()
    deviations = ((rows - rows.mean(axis=0)) ** 2).sum(axis=0)
    within = (_SPREAD_DEGREES * _PRIOR_BETWEEN_QUERIES**2 + deviations) / (_SPREAD_DEGREES + len(rows) - 1)
    error = within / len(rows)
    share: Floats = error / (error + _PRIOR_BETWEEN_CORPORA**2)
    return share


def _shrink(means: Floats, share: Floats) -> Floats:
    return (1.0 - share) * means + share * PRIOR


def _few_queries(correlations: Correlations, *, shrunk: bool) -> str:
    count = correlations.queries
    if count >= 16:
        return ""
    advice = "" if shrunk else ", consider shrinking"
    counted = f"only {count} {'query says' if count == 1 else 'queries say'} anything"
    return f"{counted}: the interval may be too narrow{advice}."


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
        bound = float(unbounded_weight(1.0, (norm - (1.0 - w)) / w, rho))
        return min(0.5 * math.erfc((bound - self.mean) / (self.error * math.sqrt(2.0))), MOST_CERTAIN)


def unbounded_weight(c_b: Floats | float, c_s: Floats | float, rho: Floats | float) -> Floats:
    """Eq. 4 without its bounds: ½ + ½ (c_s − c_b) / (c_s + c_b) · (1 + ρ) / (1 − ρ)."""
    return np.asarray(0.5 + 0.5 * (c_s - c_b) / (c_s + c_b) * (1.0 + rho) / (1.0 - rho))


def read_misfit(correlations: Correlations) -> float:
    """How far both readings from the teacher, the third vector, differ in log r; NaN where one has none."""
    return float(np.ptp(_read_teacher(correlations.stacked().mean(axis=0))))


def read_ratio_from_teacher(correlations: Correlations) -> RatioReading:
    """log r from the correlations of retriever, readout and teacher, which must all be positive."""
    rows = correlations.stacked()
    readings = _read_teacher(rows.mean(axis=0))
    bound = math.log(float(correlations.mutual.mean()) / LEAST_RETRIEVER_RELEVANCE**2)
    chance = _spread(_read_teacher(resampled_means(rows)).min(axis=0))
    misfit = float(np.ptp(readings)) / 2.0
    return min(float(readings.min()), bound), math.hypot(chance, misfit, MODEL_ERROR)


def third_moments(retriever: Floats, reranker: Floats, lists: Ragged) -> Floats:
    """E[b s s] and E[b b s] of two standardized scores (members,) in each list that varies: (queries, 2)."""
    kept, members = lists.select(~(is_constant(retriever, lists) | is_constant(reranker, lists)))
    ones = np.ones(kept.members)
    b, s = (standardize_weighted(values[members], ones, kept) for values in (retriever, reranker))
    return np.column_stack([kept.sum(b * s * s) / kept.lengths, kept.sum(b * b * s) / kept.lengths])


def read_ratio_from_rarity(moments: Floats) -> RatioReading | None:
    """log r from third moments; None where they are not clear of 0, as where relevance is not rare."""
    if len(moments) < 2:
        return None
    means, errors = moments.mean(axis=0), moments.std(axis=0, ddof=1) / math.sqrt(len(moments))
    if (means <= BEYOND_CHANCE * errors).any():
        return None
    draws = resampled_means(moments)
    with np.errstate(divide="ignore", invalid="ignore"):
        chance = _spread(np.log(draws[:, 0]) - np.log(draws[:, 1]))
    return math.log(means[0] / means[1]), math.hypot(chance, MODEL_ERROR)


def combine_readings(teacher: RatioReading, rarity: RatioReading | None) -> LogRatio:
    """Both readings by their precisions; half of what they differ by is error, too."""
    estimate, error = teacher
    if rarity is None:
        return LogRatio(estimate, error**2 + UNCHECKED_ERROR**2)
    other, other_error = rarity
    precisions = error**-2, other_error**-2
    total = sum(precisions)
    mean = (precisions[0] * estimate + precisions[1] * other) / total
    return LogRatio(mean, 1.0 / total + (estimate - other) ** 2 / 4.0)


def weigh_without_judgements(ratio: LogRatio, rho: float) -> UnboundedWeight:
    """The weight of log r at this ρ."""
    low, mean, high = (
        float(unbounded_weight(1.0, math.exp(ratio.mean + errors * ratio.error), rho))
        for errors in (-1.0, 0.0, 1.0)
    )
    return UnboundedWeight(mean, (high - low) / 2.0)


def weigh_by_judgements(judged: Correlations) -> UnboundedWeight:
    """w* of correlations with relevance, its error by resampling queries."""
    rows = judged.stacked()
    draws = resampled_means(rows)
    # Draws in which neither score knows relevance say nothing of a ratio; they widen the error.
    weights = unbounded_weight(draws[:, 0], np.maximum(draws[:, 1], 0.05 - draws[:, 0]), draws[:, 2])
    low, high = np.quantile(weights, [0.16, 0.84])
    c_b, c_s, rho = rows.mean(axis=0)
    mean = float(unbounded_weight(c_b, max(c_s, 0.05 - c_b), rho))
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
    root, half = math.sqrt(max(rho, 0.0)), math.exp(0.5 * ratio.mean)  # c_b c_s = ρ and c_s / c_b = r
    return _deploy(
        replace(paper, method="label-free", cause=""),
        weight,
        (min(root / half, 1.0), min(root * half, 1.0), rho),
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
    return _deploy(
        replace(closed_form, method="combined"),
        weight,
        (half * (1.0 - contrast), half * (1.0 + contrast), mutual),
        f"{judged.queries} judged queries, averaged with the estimate without judgements",
    )


def _deploy(
    estimate: WeightEstimate, weight: UnboundedWeight, estimated: tuple[float, float, float], note: str
) -> WeightEstimate:
    weighed = replace(
        estimate,
        weight=weight.weight,
        weight_interval=weight.interval,
        shrunk=True,
        chance_of_gain=weight.chance_of_gain(estimated[2]),
    )
    return _with_correlations(weighed, estimated, note)


def _read_teacher(means: Floats) -> Floats:
    """(2, …): log r by §B.6, and if the readout misses relevance as all else, from correlations (…, 3)."""
    rho_bt, rho_st, rho_bs = np.moveaxis(means, -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.stack([np.log(rho_st / rho_bt), np.log(rho_st) + np.log(rho_st / rho_bs)])


def _spread(draws: Floats) -> float:
    """Half the width of the middle 68 %: a standard deviation that outliers do not move."""
    finite = draws[np.isfinite(draws)]
    return float(np.ptp(np.quantile(finite, [0.16, 0.84]))) / 2.0 if len(finite) else 1.0
