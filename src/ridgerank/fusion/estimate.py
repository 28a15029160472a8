"""A weight to deploy, what it was estimated from, and how far it can be trusted."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from ridgerank.fusion.correlations import Correlations
from ridgerank.fusion.prior import Prior
from ridgerank.fusion.weight import (
    fit_one_factor,
    is_interior,
    objective,
    optimal_weight,
    resolve_heywood_case,
)
from ridgerank.ragged import Floats

Method: TypeAlias = Literal["closed-form", "label-free", "combined", "prior", "given"]

FALLBACK_WEIGHT = 0.2
"""Deployed, and said so, where no weight can be estimated. Near the retriever's end even a reranker that
ranks badly alone tends to help (proposition 1 asks only for some partial correlation), and a useless
one costs little."""
RESAMPLES = 1000
CONFIDENCE = 0.95
BEYOND_CHANCE = 2.58
"""Standard errors: of scores that know nothing of each other, one pair in two hundred gets past this."""
MOST_CERTAIN = 0.995
"""The largest chance of a gain without judgements: no number of queries makes a model true."""
_WITHIN_REACH = 0.05
"""Share of the resamples in which the one-factor model must have a solution to be called unrefuted."""
_BLOCK = 1 << 21
"""Resampled queries drawn at a time: the bootstrap's memory, whatever the number of queries."""


@dataclass(frozen=True, slots=True)
class WeightEstimate:
    """A fusion weight and what it was estimated from."""

    weight: float
    weight_interval: tuple[float, float]
    """95 % bootstrap interval over queries; (0, 1) where there are fewer than two queries."""
    method: Method
    c_b: float
    """Correlation of the retriever's score with relevance; NaN where it could not be estimated."""
    c_s: float
    """Correlation of the reranker's score with relevance; NaN where it could not be estimated."""
    rho: float
    """Correlation of the two scores with each other."""
    interior: bool
    """Both scores deserve weight (proposition 1)."""
    queries_used: int
    queries_skipped: int
    shrunk: bool
    """The correlations were shrunk towards a prior before the weight was computed."""
    chance_of_gain: float
    """Share of the resampled query sets in which this weight beats the retriever alone; NaN if unknown."""
    note: str
    """What a careful reader should know, empty if nothing."""
    cause: str = ""
    """Why the weight is not an estimate, or why an estimate is not deployed; empty where it is."""

    @property
    def is_judged(self) -> bool:
        """Whether it rests on relevance judgements, if only in part."""
        return self.method in ("closed-form", "combined")


def user_estimate(weight: float) -> WeightEstimate:
    """A weight that the user gives: nothing is estimated."""
    unknown = float("nan")
    return WeightEstimate(
        weight=weight,
        weight_interval=(weight, weight),
        method="given",
        c_b=unknown,
        c_s=unknown,
        rho=unknown,
        interior=0.0 < weight < 1.0,
        queries_used=0,
        queries_skipped=0,
        shrunk=False,
        chance_of_gain=unknown,
        note="",
    )


def closed_form_estimate(correlations: Correlations, *, prior: Prior | None = None) -> WeightEstimate:
    """w* of eq. 4 from correlations with relevance; shrunk towards `prior` where one is given."""
    correlations.require_queries()
    prior_share = _prior_shares(correlations, prior)
    mean = _shrink(correlations.stacked().mean(axis=0), prior_share, prior)
    c_b, c_s, rho = mean
    weight = float(optimal_weight(c_b, c_s, rho))

    def resampled(means: Floats) -> tuple[Floats, Floats]:
        b, s, r = _shrink(means, prior_share, prior).T
        return optimal_weight(b, s, r), objective(np.asarray(weight), b, s, r) - b

    interval, chance, _ = _bootstrap(correlations, resampled)
    return WeightEstimate(
        weight=weight,
        weight_interval=interval,
        method="closed-form",
        c_b=float(c_b),
        c_s=float(c_s),
        rho=float(rho),
        interior=bool(is_interior(c_b, c_s, rho)),
        queries_used=correlations.queries,
        queries_skipped=correlations.skipped,
        shrunk=prior is not None,
        chance_of_gain=chance,
        note=_few_queries(correlations, shrunk=prior is not None),
    )


def label_free_estimate(correlations: Correlations, *, prior: Prior | None = None) -> WeightEstimate:
    """The weight of §B.6: c_b and c_s from the correlations of three scores, no relevance judgement read.

    `correlations` has the full-depth margin as its third vector. Where the one-factor model has no
    solution the weight is `FALLBACK_WEIGHT`; method and note then say so. An estimate above 1 that chance
    explains is no such case: a score nearly as good as relevance gives one in every other sample. It is taken
    for 1, and the note says so. Calibration deploys `ratio_estimate.py` instead.
    """
    correlations.require_queries()
    prior_share = _prior_shares(correlations, prior)
    mean = _shrink(correlations.stacked().mean(axis=0), prior_share, prior)
    rho_bt, rho_st, rho_bs = mean
    model = fit_one_factor(rho_bs, rho_bt, rho_st)
    at_edge = bool(model.heywood) and _chance_explains(correlations)
    if not bool(model.defined) and not at_edge:
        return _fallback(correlations, mean, heywood=bool(model.heywood), shrunk=prior is not None)
    c_b, c_s = resolve_heywood_case(rho_bs, rho_bt, rho_st) if at_edge else (model.c_b, model.c_s)
    weight = float(optimal_weight(c_b, c_s, rho_bs))

    def resampled(means: Floats) -> tuple[Floats, Floats]:
        bt, st, bs = _shrink(means, prior_share, prior).T
        draws = fit_one_factor(bs, bt, st)
        b, s = draws.c_b, draws.c_s
        weights = np.where(draws.defined, optimal_weight(b, s, bs), np.nan)
        return weights, objective(np.asarray(weight), b, s, bs) - b

    interval, chance, undefined = _bootstrap(correlations, resampled)
    note = _few_queries(correlations, shrunk=prior is not None)
    if at_edge:
        note = f"{note} a score is as good as relevance itself, as far as these queries can tell.".strip()
    if undefined:
        note = f"{note} the one-factor model has no solution in {undefined:.0%} of the resamples".strip()
    return WeightEstimate(
        weight=weight,
        weight_interval=interval,
        method="label-free",
        c_b=float(c_b),
        c_s=float(c_s),
        rho=float(rho_bs),
        interior=bool(is_interior(c_b, c_s, rho_bs)),
        queries_used=correlations.queries,
        queries_skipped=correlations.skipped,
        shrunk=prior is not None,
        chance_of_gain=min(chance, MOST_CERTAIN),
        note=note,
    )


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
    means = np.concatenate(list(resampled_means(rows)))
    bt, st, bs = means.T
    return bool(fit_one_factor(bs, bt, st).defined.mean() >= _WITHIN_REACH)


def _fallback(correlations: Correlations, mean: Floats, *, heywood: bool, shrunk: bool) -> WeightEstimate:
    rho_bt, rho_st, rho_bs = mean.tolist()
    measured = f"retriever-reranker {rho_bs:.3f}, retriever-third {rho_bt:.3f}, reranker-third {rho_st:.3f}"
    reason = (
        "an estimate exceeds 1, so the scores share more than relevance"
        if heywood
        else "not all three correlations are positive"
    )
    cause = f"the one-factor model does not fit ({measured}): {reason}"
    return WeightEstimate(
        weight=FALLBACK_WEIGHT,
        weight_interval=(0.0, 1.0),
        method="prior",
        c_b=float("nan"),
        c_s=float("nan"),
        rho=rho_bs,
        interior=False,
        queries_used=correlations.queries,
        queries_skipped=correlations.skipped,
        shrunk=shrunk,
        chance_of_gain=float("nan"),
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
    parts = [resampled(means) for means in resampled_means(rows)]
    weights = np.concatenate([part[0] for part in parts])
    gains = np.concatenate([part[1] for part in parts])
    defined = ~np.isnan(weights)
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(weights[defined], [tail, 1.0 - tail]) if defined.any() else (0.0, 1.0)
    chance = float(np.mean(gains[defined] > 0)) if defined.any() else float("nan")
    return (float(low), float(high)), chance, float(np.mean(~defined))


def resampled_means(rows: Floats) -> Iterator[Floats]:
    """Means over query sets drawn with replacement, a block at a time: (block, 3)."""
    generator = np.random.default_rng(0)  # fixed: the same runs give the same interval
    block = max(1, min(RESAMPLES, _BLOCK // len(rows)))
    for start in range(0, RESAMPLES, block):
        count = min(block, RESAMPLES - start)
        yield rows[generator.integers(len(rows), size=(count, len(rows)))].mean(axis=1)


def _prior_shares(correlations: Correlations, prior: Prior | None) -> Floats:
    return np.zeros(3) if prior is None else prior.share(correlations)


def _shrink(means: Floats, prior_share: Floats, prior: Prior | None) -> Floats:
    return means if prior is None else (1.0 - prior_share) * means + prior_share * prior.mean


def _few_queries(correlations: Correlations, *, shrunk: bool) -> str:
    count = correlations.queries
    if count >= 16:
        return ""
    advice = "" if shrunk else ", consider shrinking"
    return f"{describe_count(count)}: the interval may be too narrow{advice}."


def describe_count(queries: int) -> str:
    """That only so many queries say anything."""
    return f"only {queries} {'query says' if queries == 1 else 'queries say'} anything"
