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
"""The weight of §B.6 if its model has no solution. Near the retriever's end even a reranker that ranks badly
alone tends to help (proposition 1), and a useless one costs little."""
RESAMPLES = 1000
MOST_CERTAIN = 0.995
"""The largest chance of a gain without judgements: no number of queries makes a model true."""
_BLOCK = 1 << 21
"""Resampled queries drawn at a time: the bootstrap's memory, whatever the number of queries."""
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

    Elsewhere the objective, a cosine along the arc from z(b) to z(s), is highest at an end point: w = 1
    where c_s > c_b, else w = 0. At |ρ| = 1 the same holds: with ρ = 1 both scores rank alike, with ρ = −1
    they are mirror images; a tie goes to the retriever, which costs nothing.
    """
    interior = is_interior(c_b, c_s, rho)
    denominator = np.where(interior, (c_b + c_s) * (1.0 - rho), 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        inside = (c_s - rho * c_b) / denominator
    weight: Floats = np.where(interior, inside, np.where(c_s > c_b, 1.0, 0.0))
    return np.clip(weight, 0.0, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class OneFactor:
    """c_b and c_s as a one-factor model explains three scores' correlations; NaN where it cannot."""

    c_b: Floats
    c_s: Floats
    c_third: Floats
    defined: Bools
    """The model holds: all three estimates are real and at most 1."""
    heywood: Bools
    """Real estimates, one of them above 1: the noises of two scores are not uncorrelated (a Heywood case)."""


def fit_one_factor(rho_bs: Floats, rho_bt: Floats, rho_st: Floats) -> OneFactor:
    """c_b = √(ρ_bs ρ_bt / ρ_st), c_s = √(ρ_bs ρ_st / ρ_bt), c_t = √(ρ_bt ρ_st / ρ_bs), §B.6.

    The three scores agree with relevance positively only if all three correlations are positive: a
    negative product has no real solution, and two negative correlations would need a score that points
    away from relevance. Both count as undefined. An estimate above 1 is no correlation either.
    """
    positive = (rho_bs > 0) & (rho_bt > 0) & (rho_st > 0)
    bs, bt, st = (np.where(positive, rho, 1.0) for rho in (rho_bs, rho_bt, rho_st))
    with np.errstate(over="ignore"):
        estimates = [np.sqrt(bs * bt / st), np.sqrt(bs * st / bt), np.sqrt(bt * st / bs)]
    beyond = positive & np.any([estimate > 1.0 + 1e-12 for estimate in estimates], axis=0)
    c_b, c_s, c_third = (np.where(positive, estimate, np.nan) for estimate in estimates)
    return OneFactor(c_b, c_s, c_third, positive & ~beyond, beyond)


def resolve_heywood_case(rho_bs: Floats, rho_bt: Floats, rho_st: Floats) -> tuple[Floats, Floats]:
    """c_b and c_s of a Heywood case, settled where the one-factor model ends.

    The score whose estimate is largest is taken for relevance itself, c = 1; the others' are then their
    correlations with it. One triple of correlations at a time.
    """
    estimates = fit_one_factor(rho_bs, rho_bt, rho_st)
    largest = int(np.argmax([estimates.c_b, estimates.c_s, estimates.c_third]))
    unit = np.ones_like(rho_bs)
    return ((unit, rho_bs), (rho_bs, unit), (rho_bt, rho_st))[largest]


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
    c_b, c_s, rho = correlations.stacked().mean(axis=0)
    return _estimate(correlations, "closed-form", c_b, c_s, rho, lambda means: (*means.T, np.bool_(True)))


def label_free_estimate(correlations: Correlations) -> WeightEstimate:
    """The weight of §B.6: c_b and c_s from the correlations of three scores, no relevance judgement read.

    `correlations` has the full-depth margin as its third vector. If the one-factor model has no solution,
    the weight is `FALLBACK_WEIGHT`, and method and note say so. An estimate above 1 is not such a case: a
    score nearly as good as relevance gives one in every other sample. It is taken for 1, and a note says so.
    """
    correlations.require_queries()
    rho_bt, rho_st, rho_bs = correlations.stacked().mean(axis=0)
    model = fit_one_factor(rho_bs, rho_bt, rho_st)
    at_edge = bool(model.heywood)
    if not bool(model.defined) and not at_edge:
        return _fallback(correlations)
    c_b, c_s = resolve_heywood_case(rho_bs, rho_bt, rho_st) if at_edge else (model.c_b, model.c_s)

    def solve(means: Floats) -> tuple[Floats, Floats, Floats, Bools]:
        bt, st, bs = means.T
        draws = fit_one_factor(bs, bt, st)
        return draws.c_b, draws.c_s, bs, draws.defined

    estimate = _estimate(correlations, "label-free", c_b, c_s, rho_bs, solve)
    edge = "a score is as good as relevance itself, as far as these queries can tell." if at_edge else ""
    return replace(
        estimate,
        chance_of_gain=min(estimate.chance_of_gain, MOST_CERTAIN),
        note=" ".join(filter(None, (edge, estimate.note))),
    )


def _estimate(
    correlations: Correlations,
    method: Method,
    c_b: Floats,
    c_s: Floats,
    rho: Floats,
    solve: Callable[[Floats], tuple[Floats, Floats, Floats, Bools | np.bool_]],
) -> WeightEstimate:
    """w* with its interval; `solve` takes resampled means to c_b, c_s, ρ, and whether these are defined."""
    weight = float(optimal_weight(c_b, c_s, rho))
    interval, chance, notes = (0.0, 1.0), math.nan, [_few_queries(correlations)]
    if correlations.queries > 1:
        b, s, r, defined = solve(resampled_means(correlations.stacked()))
        weights = np.where(defined, optimal_weight(b, s, r), np.nan)
        known = ~np.isnan(weights)
        if known.any():
            low, high = np.quantile(weights[known], [0.025, 0.975]).tolist()
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
        queries_used=correlations.queries,
        queries_skipped=correlations.skipped,
        chance_of_gain=chance,
        note=" ".join(filter(None, notes)),
    )


def _fallback(correlations: Correlations) -> WeightEstimate:
    rho_bt, rho_st, rho_bs = correlations.stacked().mean(axis=0).tolist()
    measured = f"retriever-reranker {rho_bs:.3f}, retriever-third {rho_bt:.3f}, reranker-third {rho_st:.3f}"
    return WeightEstimate(
        FALLBACK_WEIGHT,
        (0.0, 1.0),
        "prior",
        rho=rho_bs,
        queries_used=correlations.queries,
        queries_skipped=correlations.skipped,
        note=(
            f"the one-factor model does not fit ({measured}): not all three correlations are positive; the "
            "weight is a cautious default, not an estimate. Give relevance judgements, or a third score that "
            "agrees with both"
        ),
    )


def resampled_means(rows: Floats) -> Floats:
    """Means over query sets drawn with replacement: (queries, columns) → (resamples, columns)."""
    generator = np.random.default_rng(0)  # fixed: the same runs give the same interval
    block = max(1, min(RESAMPLES, _BLOCK // len(rows)))
    sizes = [min(block, RESAMPLES - start) for start in range(0, RESAMPLES, block)]
    draws = [rows[generator.integers(len(rows), size=(size, len(rows)))].mean(axis=1) for size in sizes]
    return np.concatenate(draws)


def _few_queries(correlations: Correlations) -> str:
    count = correlations.queries
    if count >= 16:
        return ""
    counted = f"only {count} {'query says' if count == 1 else 'queries say'} anything"
    return f"{counted}: the interval may be too narrow."
