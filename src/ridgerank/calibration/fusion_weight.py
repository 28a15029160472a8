"""From held-out scores to the weight that is deployed, and what must be said about it.

Calibrating must not make a ranking worse than the retriever's unnoticed. So the deployed weight is
- 0, the retriever's own order, where the readout does not agree with its teacher on lists it has not seen,
  or where the estimate promises no gain over the retriever;
- 0 as well where no estimate is possible. Shrinking must not hide that: three scores that hardly correlate
  look well-behaved once they are pulled towards a prior. So the one-factor model has to fit before shrinking,
  and the retriever to agree with both others beyond chance;
- the estimate otherwise: w* where there are judgements, here or of another corpus, shrunk towards a cautious
  prior while queries are few; else the label-free one of `fusion/ratio_estimate.py`.
Anything but the last is a warning.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ridgerank.calibration.ridge_fit import RidgeFit, RidgeProblem
from ridgerank.fusion.correlations import Correlations, correlate
from ridgerank.fusion.estimate import (
    BEYOND_CHANCE,
    WeightEstimate,
    closed_form_estimate,
    label_free_estimate,
)
from ridgerank.fusion.prior import Prior
from ridgerank.fusion.ratio_estimate import estimate_by_ratio
from ridgerank.fusion.weight import fit_one_factor, objective
from ridgerank.ragged import Floats
from ridgerank.readout.bound import relevance_floor

SHRINK_BELOW = 64
"""With fewer queries the estimate is shrunk; from there on that makes no difference (docs/fusion.md)."""
_NO_ESTIMATE = "no weight can be estimated. Give more queries, or relevance judgements"
_LEAST_CHANCE = 0.5
"""A weight that loses to the retriever in most resamples is not deployed."""


@dataclass(frozen=True, slots=True, eq=False)
class WeightDecision:
    """The deployed weight, the estimates it was decided from, and what to warn of."""

    deployed: WeightEstimate
    label_free: WeightEstimate
    paper_label_free: WeightEstimate
    """§B.6 of this reading alone, as the paper has it: for comparison."""
    closed_form: WeightEstimate | None
    agreement: float
    agreement_interval: tuple[float, float]
    teacher_relevance: float
    relevance_floor: float
    expected_gain: float
    retriever_target: float
    """ρ_bt: how far retriever and teacher agree."""
    retriever_readout: float
    """ρ_bs: how far retriever and held-out readout agree."""
    warnings: tuple[str, ...]


def decide_weight(
    problem: RidgeProblem,
    fit: RidgeFit,
    relevance: Floats | None,
    *,
    transferred: WeightEstimate | None = None,
    retriever_relevance: Sequence[float] = (),
) -> WeightDecision:
    """Estimate the weight from held-out scores; `relevance` (members,) where there are judgements.

    A weight `transferred` from the judgements of another corpus takes the place of w* where there are none
    here. `retriever_relevance` has the c_b that other readings of the same retriever give, by §B.6.
    """
    b, s, t, lists = problem.retriever, fit.held_out_scores, problem.targets, problem.lists
    correlations = correlate(b, s, t, lists)
    label_free, paper = _estimate_without_labels(correlations, retriever_relevance)
    rho_bt, rho_st, rho_bs = correlations.stacked().mean(axis=0)
    closed_form = transferred
    if relevance is not None:
        judged = correlate(b, s, relevance, lists)
        closed_form = closed_form_estimate(judged, prior=_prior(judged.queries))
        c_t = float(correlate(b, t, relevance, lists).reranker.mean())
    else:
        factors = fit_one_factor(rho_bs, rho_bt, rho_st)
        c_t = float(factors.c_third) if bool(factors.defined) else float("nan")
    agreement, interval = mean_interval(fit.agreement)
    deployed, gain, warnings = _deploy(closed_form or label_free, agreement, interval[0])
    return WeightDecision(
        deployed=deployed,
        label_free=label_free,
        paper_label_free=paper,
        closed_form=closed_form,
        agreement=agreement,
        agreement_interval=interval,
        teacher_relevance=c_t,
        relevance_floor=float(relevance_floor(np.asarray(agreement), np.asarray(c_t))),
        expected_gain=gain,
        retriever_target=float(rho_bt),
        retriever_readout=float(rho_bs),
        warnings=warnings,
    )


def _estimate_without_labels(
    correlations: Correlations, retriever_relevance: Sequence[float]
) -> tuple[WeightEstimate, WeightEstimate]:
    """The label-free weight to deploy, and §B.6 of this reading alone."""
    paper = label_free_estimate(correlations)
    if paper.method == "prior":
        return replace(paper, weight=0.0, note=f"{paper.cause}; {_NO_ESTIMATE}"), paper
    within_chance = {
        name: interval
        for name, values in (("full model", correlations.retriever), ("readout", correlations.mutual))
        if (interval := mean_interval(values, errors=BEYOND_CHANCE))[1][0] <= 0
    }
    if within_chance:
        measured = ", ".join(
            f"with the {name} {mean:.2f}, 99 % interval from {low:.2f}"
            for name, (mean, (low, _)) in within_chance.items()
        )
        cause = (
            f"the retriever's scores do not correlate beyond chance ({measured}), so nothing shows that the "
            "model can tell relevant pages here"
        )
        unsupported = replace(
            paper,
            weight=0.0,
            weight_interval=(0.0, 1.0),
            method="prior",
            c_b=float("nan"),
            c_s=float("nan"),
            interior=False,
            chance_of_gain=float("nan"),
            cause=cause,
            note=f"{cause}; {_NO_ESTIMATE}",
        )
        return unsupported, paper
    return estimate_by_ratio(correlations, paper, retriever_relevance), paper


def _deploy(
    estimate: WeightEstimate, agreement: float, least_agreement: float
) -> tuple[WeightEstimate, float, tuple[str, ...]]:
    """The weight to rank with, its expected gain and the warnings."""
    correlations = (np.asarray(value) for value in (estimate.c_b, estimate.c_s, estimate.rho))
    gain = float(objective(np.asarray(estimate.weight), *correlations)) - estimate.c_b
    if not least_agreement > 0:
        return _keep_retriever_order(
            estimate,
            f"the readout does not agree with the full model on lists it has not seen (r = {agreement:.2f}, "
            f"95 % interval from {least_agreement:.2f})",
        )
    if estimate.method == "prior":
        return _keep_retriever_order(estimate, estimate.cause)
    if not gain > 0 or estimate.chance_of_gain < _LEAST_CHANCE:
        return _keep_retriever_order(
            estimate,
            f"no gain over the retriever is expected (weight {estimate.weight:.2f}, gain {gain:+.3f}, "
            f"the chance of a gain is {estimate.chance_of_gain:.0%})",
        )
    return estimate, gain, ()


def _keep_retriever_order(
    estimate: WeightEstimate, cause: str
) -> tuple[WeightEstimate, float, tuple[str, ...]]:
    warning = (
        f"{cause}: the weight is 0, pages stay in the retriever's order. Calibrate with more or other "
        "queries, or with relevance judgements"
    )
    return replace(estimate, weight=0.0, interior=False, cause=cause, note=warning), 0.0, (warning,)


def _prior(queries: int) -> Prior | None:
    return Prior() if queries < SHRINK_BELOW else None


def mean_interval(values: Floats, *, errors: float = 1.96) -> tuple[float, tuple[float, float]]:
    """A mean and the interval of `errors` standard errors around it: 1.96 are 95 %. One value has none."""
    mean = float(values.mean())
    if len(values) < 2:
        return mean, (-1.0, 1.0)
    error = errors * float(values.std(ddof=1)) / np.sqrt(len(values))
    return mean, (mean - error, mean + error)
