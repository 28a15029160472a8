"""The weight of proposition 1 (eq. 4) and of §B.6, with intervals over resampled queries."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from ridgerank.fusion.correlations import Correlations
from ridgerank.ragged import Bools, Floats

Method: TypeAlias = Literal["closed-form", "label-free", "prior", "given"]
"""Eq. 4 on judgements, §B.6, none of them, or the user's."""

FALLBACK_WEIGHT = 0.2
"""The weight of §B.6 if its model has no solution: near the retriever's end a useless score costs little."""
RESAMPLES = 1000
MOST_CERTAIN = 0.995
"""The largest chance of a gain without judgements: no number of queries makes a model true."""
_UNIT = 1.0 - 1e-12
"""|ρ| beyond this is 1 to rounding: the two scores are one score, or its mirror image."""


def objective(weight: Floats, c_b: Floats, c_s: Floats, rho: Floats) -> Floats:
    """Correlation of the fused score with relevance: (αc_b + βc_s) / √(α² + β² + 2αβρ), α = 1 − w, β = w."""
    alpha, beta = 1.0 - weight, weight
    norm = np.sqrt(np.maximum(alpha**2 + beta**2 + 2.0 * alpha * beta * rho, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        value: Floats = np.where(norm > 0, (alpha * c_b + beta * c_s) / norm, 0.0)
    return value


def is_interior(c_b: Floats, c_s: Floats, rho: Floats) -> Bools:
    """Proposition 1's conditions: |ρ| < 1, c_b > ρc_s and c_s > ρc_b: both scores deserve weight."""
    return (np.abs(rho) < _UNIT) & (c_b > rho * c_s) & (c_s > rho * c_b)


def optimal_weight(c_b: Floats, c_s: Floats, rho: Floats) -> Floats:
    """w* = (c_s − ρc_b) / ((c_b + c_s)(1 − ρ)), eq. 4, where the optimum is interior.

    Elsewhere, and at |ρ| = 1, the objective is highest at an end point: w = 1 where c_s > c_b, else w = 0. A
    tie goes to the retriever, which costs nothing.
    """
    interior = is_interior(c_b, c_s, rho)
    denominator = np.where(interior, (c_b + c_s) * (1.0 - rho), 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        inside = (c_s - rho * c_b) / denominator
    weight: Floats = np.where(interior, inside, np.where(c_s > c_b, 1.0, 0.0))
    return np.clip(weight, 0.0, 1.0)


def explain_by_one_factor(rho_bs: Floats, rho_bt: Floats, rho_st: Floats) -> tuple[Floats, Floats, Bools]:
    """c_b and c_s as a one-factor model explains three scores' correlations, and where that is at its edge.

    c_b = √(ρ_bs ρ_bt / ρ_st), c_s = √(ρ_bs ρ_st / ρ_bt), c_t = √(ρ_bt ρ_st / ρ_bs), §B.6. The three scores
    agree with relevance positively only if all three correlations are positive; elsewhere there is no
    estimate: NaN. Where one is above 1 the noises of two scores are not uncorrelated (a Heywood case): that
    score is taken for relevance itself, c = 1, and the others' are their correlations with it.
    """
    positive = (rho_bs > 0) & (rho_bt > 0) & (rho_st > 0)
    bs, bt, st = (np.where(positive, rho, np.nan) for rho in (rho_bs, rho_bt, rho_st))
    with np.errstate(over="ignore"):
        estimates = np.sqrt([bs * bt / st, bs * st / bt, bt * st / bs])
    largest, at_edge = estimates.argmax(axis=0), estimates.max(axis=0) > 1.0 + 1e-12
    c_b = np.where(at_edge, np.choose(largest, [np.ones_like(bs), bs, bt]), estimates[0])
    c_s = np.where(at_edge, np.choose(largest, [bs, np.ones_like(bs), st]), estimates[1])
    return c_b, c_s, at_edge


@dataclass(frozen=True, slots=True)
class WeightEstimate:
    """A fusion weight and what it was estimated from."""

    weight: float
    weight_interval: tuple[float, float]
    """95 % bootstrap interval over queries; (0, 1) where there are fewer than two queries."""
    method: Method
    c_b: float = math.nan
    """Correlation of the retriever's score with relevance; NaN where it could not be estimated."""
    c_s: float = math.nan
    """Correlation of the reranker's score with relevance; NaN where it could not be estimated."""
    rho: float = math.nan
    """Correlation of the two scores with each other."""
    interior: bool = False
    """Both scores deserve weight (proposition 1)."""
    queries_used: int = 0
    queries_skipped: int = 0
    chance_of_gain: float = math.nan
    """Share of the resampled query sets in which this weight beats the retriever alone; NaN if unknown."""
    note: str = ""
    """What a careful reader should know, empty if nothing."""
    cause: str = ""
    """Why the weight is 0 though an estimate says otherwise; empty if it is the estimate."""


def user_estimate(weight: float) -> WeightEstimate:
    """A weight that the user gives: nothing is estimated."""
    return WeightEstimate(weight, (weight, weight), "given", interior=0.0 < weight < 1.0)


def closed_form_estimate(correlations: Correlations) -> WeightEstimate:
    """w* of eq. 4 from correlations with relevance."""
    correlations.require_queries()
    return _estimate(correlations, "closed-form", lambda means: tuple(means.T))


def label_free_estimate(correlations: Correlations) -> WeightEstimate:
    """The weight of §B.6: c_b and c_s from the correlations of three scores, no relevance judgement read.

    `correlations` has the full-depth margin as its third vector. If the one-factor model has no solution, the
    weight is `FALLBACK_WEIGHT`; an estimate above 1 is taken for 1. A note says so.
    """
    correlations.require_queries()
    means = correlations.stacked().mean(axis=0)
    c_b, _, at_edge = explain_by_one_factor(means[2], means[0], means[1])
    if np.isnan(c_b):
        bt, st, bs = means.tolist()
        return WeightEstimate(
            FALLBACK_WEIGHT,
            (0.0, 1.0),
            "prior",
            rho=bs,
            queries_used=correlations.queries,
            queries_skipped=correlations.skipped,
            note=(
                f"the one-factor model does not fit (retriever-reranker {bs:.3f}, retriever-third {bt:.3f}, "
                f"reranker-third {st:.3f}): not all three correlations are positive; the weight is a "
                "cautious default, not an estimate. Give relevance judgements, or a third score that agrees "
                "with both"
            ),
        )

    def solve(means: Floats) -> tuple[Floats, ...]:
        bt, st, bs = means.T
        b, s, beyond = explain_by_one_factor(bs, bt, st)
        return (np.where(beyond, np.nan, b) if means.ndim > 1 else b), s, bs

    estimate = _estimate(correlations, "label-free", solve)
    edge = "a score is as good as relevance itself, as far as these queries can tell." if at_edge else ""
    return replace(
        estimate,
        chance_of_gain=min(estimate.chance_of_gain, MOST_CERTAIN),
        note=" ".join(filter(None, (edge, estimate.note))),
    )


def _estimate(
    correlations: Correlations, method: Method, solve: Callable[[Floats], tuple[Floats, ...]]
) -> WeightEstimate:
    """w* with its interval; `solve` takes means to c_b, c_s and ρ, of a resample without any c_b is NaN."""
    c_b, c_s, rho = solve(correlations.stacked().mean(axis=0))
    weight, count = float(optimal_weight(c_b, c_s, rho)), correlations.queries
    interval, chance, notes = (0.0, 1.0), math.nan, []
    if count < 16:
        says = "query says" if count == 1 else "queries say"
        notes.append(f"only {count} {says} anything: the interval may be too narrow.")
    if count > 1:
        b, s, r = solve(resampled_means(correlations.stacked()))
        known = ~np.isnan(b)
        if known.any():
            low, high = np.quantile(optimal_weight(b, s, r)[known], [0.025, 0.975]).tolist()
            interval, gains = (low, high), objective(np.asarray(weight), b, s, r) - b
            chance = float(np.mean(gains[known] > 0))
        if not known.all():
            notes.append(f"the one-factor model has no solution in {np.mean(~known):.0%} of the resamples")
    return WeightEstimate(
        weight=weight,
        weight_interval=interval,
        method=method,
        c_b=float(c_b),
        c_s=float(c_s),
        rho=float(rho),
        interior=bool(is_interior(c_b, c_s, rho)),
        queries_used=count,
        queries_skipped=correlations.skipped,
        chance_of_gain=chance,
        note=" ".join(notes),
    )


def resampled_means(rows: Floats) -> Floats:
    """Means over query sets drawn with replacement: (queries, columns) → (resamples, columns)."""
    generator = np.random.default_rng(0)  # fixed: the same runs give the same interval
    count = len(rows)
    return np.array([rows[generator.integers(count, size=count)].mean(axis=0) for _ in range(RESAMPLES)])
