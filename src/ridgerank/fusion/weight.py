"""The closed-form weight of proposition 1 and the one-factor model of §B.6, and the record of a weight."""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from ridgerank.ragged import Bools, Floats

Method: TypeAlias = Literal["closed-form", "label-free", "combined", "prior", "given"]

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


def partial_correlations(c_b: Floats, c_s: Floats, rho: Floats) -> tuple[Floats, Floats]:
    """What each score says of relevance that the other does not: (retriever given reranker, the reverse).

    r_{b·s} = (c_b − ρc_s) / √((1 − ρ²)(1 − c_s²)); NaN where the denominator vanishes.
    """

    def partial(score: Floats, other: Floats) -> Floats:
        remaining = (1.0 - rho**2) * (1.0 - other**2)
        with np.errstate(divide="ignore", invalid="ignore"):
            value: Floats = np.where(
                remaining > 0, (score - rho * other) / np.sqrt(np.maximum(remaining, 0.0)), np.nan
            )
        return value

    return partial(c_b, c_s), partial(c_s, c_b)


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
    shrunk: bool = False
    """The correlations were shrunk towards a prior before the weight was computed."""
    chance_of_gain: float = math.nan
    """Share of the resampled query sets in which this weight beats the retriever alone; NaN if unknown."""
    note: str = ""
    """What a careful reader should know, empty if nothing."""
    cause: str = ""
    """Why the weight is not an estimate, or why an estimate is not deployed; empty where it is."""

    @property
    def is_judged(self) -> bool:
        """Whether it rests on relevance judgements, if only in part."""
        return self.method in ("closed-form", "combined")


def user_estimate(weight: float) -> WeightEstimate:
    """A weight that the user gives: nothing is estimated."""
    return WeightEstimate(weight, (weight, weight), "given", interior=0.0 < weight < 1.0)
