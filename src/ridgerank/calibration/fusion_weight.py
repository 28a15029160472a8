"""From held-out scores to the weight that is deployed, and what must be said about it.

Calibrating must not make a ranking worse than the retriever's unnoticed. So the deployed weight is
- 0, the retriever's own order, where the readout does not agree with its teacher on lists it has not seen,
  or where the estimate promises no gain over the retriever;
- 0 as well where no estimate is possible: without judgements, where the retriever does not agree with both
  others beyond chance, or where the two readings of `fusion/ratio_estimate.py` differ too much. Few
  judgements change this only where they show, beyond chance, that the readout knows relevance;
- the estimate otherwise: w* of many judgements, here or of another corpus; of few judgements averaged with
  the label-free estimate; or that alone.
Anything but the last is a warning.
"""

from dataclasses import dataclass, replace

import numpy as np

from ridgerank.calibration.ridge_fit import RidgeFit, RidgeProblem
from ridgerank.fusion.correlations import (
    Correlations,
    ThirdMoments,
    correlate,
    correlation,
    measure_third_moments,
)
from ridgerank.fusion.estimate import (
    BEYOND_CHANCE,
    WeightEstimate,
    closed_form_estimate,
    label_free_estimate,
)
from ridgerank.fusion.prior import Prior
from ridgerank.fusion.ratio_estimate import (
    LARGEST_MISFIT,
    LogRatio,
    combine_readings,
    combine_with_judgements,
    estimate_by_ratio,
    read_misfit,
    read_ratio_from_rarity,
    read_ratio_from_teacher,
)
from ridgerank.fusion.weight import fit_one_factor, objective
from ridgerank.ragged import Floats, Ragged
from ridgerank.readout.bound import relevance_floor

MANY_JUDGED = 64
"""With fewer judged queries the estimate without judgements counts, too, or a prior where there is none."""
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
    doubt: str
    """Why nothing shows that the model can tell relevant pages here; empty where something does."""
    warnings: tuple[str, ...]


def decide_weight(
    problem: RidgeProblem,
    fit: RidgeFit,
    relevance: Floats | None,
    *,
    transferred: WeightEstimate | None = None,
) -> WeightDecision:
    """Estimate the weight from held-out scores; `relevance` (members,) where there are judgements.

    A weight `transferred` from the judgements of another corpus takes the place of w* where there are none
    here.
    """
    b, s, t, lists = problem.retriever, fit.held_out_scores, problem.targets, problem.lists
    judged = teacher_relevance = None
    if relevance is not None:
        judged = correlate(b, s, relevance, lists)
        teacher_relevance = float(correlate(b, t, relevance, lists).reranker.mean())
    return decide_from_scores(
        b, s, t, lists, judged, teacher_relevance=teacher_relevance, transferred=transferred
    )


def decide_from_scores(
    b: Floats,
    s: Floats,
    t: Floats,
    lists: Ragged,
    judged: Correlations | None,
    *,
    teacher_relevance: float | None = None,
    transferred: WeightEstimate | None = None,
) -> WeightDecision:
    """The same from scores alone: retriever, held-out readout and target, (members,) each.

    `judged` are correlations with relevance, of these lists or of others; `teacher_relevance` is c_t by the
    same judgements.
    """
    correlations = correlate(b, s, t, lists)
    rho_bt, rho_st, rho_bs = correlations.stacked().mean(axis=0).tolist()
    paper = label_free_estimate(correlations)
    doubt = _doubt_reading(correlations)
    ratio, cause = _measure_ratio(correlations, measure_third_moments(b, s, lists), doubt)
    label_free = _unsupported(paper, cause) if ratio is None else estimate_by_ratio(paper, ratio, rho_bs)
    estimate = closed_form = transferred
    if judged is not None:
        shown, evidence = _shows_relevance(judged)
        doubt = "" if not doubt or shown else f"{doubt}, nor do {evidence}"
        closed_form = closed_form_estimate(judged, prior=_prior(judged.queries))
        estimate = closed_form
        if judged.queries < MANY_JUDGED and ratio is not None:
            estimate = combine_with_judgements(closed_form, judged, ratio, rho_bs)
        elif judged.queries < MANY_JUDGED and not shown:
            cause = f"{cause}; {evidence} do not show it either"
            unknown = float("nan")
            estimate = replace(
                closed_form, method="prior", weight_interval=(0.0, 1.0), chance_of_gain=unknown, cause=cause
            )
    c_t = teacher_relevance
    if c_t is None:
        factors = fit_one_factor(np.asarray(rho_bs), np.asarray(rho_bt), np.asarray(rho_st))
        c_t = float(factors.c_third) if bool(factors.defined) else float("nan")
    agreement, interval = mean_interval(correlation(s, t, lists))
    deployed, gain, warnings = _deploy(estimate or label_free, agreement, interval[0])
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
        retriever_target=rho_bt,
        retriever_readout=rho_bs,
        doubt=doubt,
        warnings=warnings,
    )


def _shows_relevance(judged: Correlations) -> tuple[bool, str]:
    """Whether judgements show beyond chance that the readout knows relevance, and what they were."""
    mean, (low, _) = mean_interval(judged.reranker, errors=BEYOND_CHANCE)
    measured = f"c_s {mean:.2f}, 99 % interval from {low:.2f}"
    return low > 0, f"{judged.queries} judged {_queries(judged.queries)} ({measured})"


def _doubt_reading(correlations: Correlations) -> str:
    """Why the scores alone do not show that the model can tell relevant pages; empty where they do."""
    within_chance = {
        name: interval
        for name, values in (("teacher", correlations.retriever), ("readout", correlations.mutual))
        if (interval := mean_interval(values, errors=BEYOND_CHANCE))[1][0] <= 0
    }
    if within_chance:
        measured = ", ".join(
            f"with the {name} {mean:.2f}, 99 % interval from {low:.2f}"
            for name, (mean, (low, _)) in within_chance.items()
        )
        return (
            f"the retriever's scores do not correlate beyond chance ({measured}), so nothing shows that the "
            "model can tell relevant pages here"
        )
    if np.isnan(read_misfit(correlations)):
        return "readout and teacher do not agree, so nothing shows what the readout is worth"
    return ""


def _measure_ratio(
    correlations: Correlations, moments: ThirdMoments, doubt: str
) -> tuple[LogRatio | None, str]:
    """log c_s / c_b without judgements; where these scores cannot tell, None and why."""
    if doubt:
        return None, doubt
    misfit = read_misfit(correlations)
    if misfit > LARGEST_MISFIT:
        return None, (
            "two readings of how the readout compares with the retriever differ by a factor of "
            f"{np.exp(misfit):.1f} (wanted at most {np.exp(LARGEST_MISFIT):.1f}), so neither can be trusted"
        )
    return combine_readings(read_ratio_from_teacher(correlations), read_ratio_from_rarity(moments)), ""


def _unsupported(paper: WeightEstimate, cause: str) -> WeightEstimate:
    unknown = float("nan")
    return replace(
        paper,
        weight=0.0,
        weight_interval=(0.0, 1.0),
        method="prior",
        c_b=unknown,
        c_s=unknown,
        interior=False,
        chance_of_gain=unknown,
        cause=cause,
        note=f"{cause}; no weight can be estimated. Give more queries, or relevance judgements",
    )


def _deploy(
    estimate: WeightEstimate, agreement: float, least_agreement: float
) -> tuple[WeightEstimate, float, tuple[str, ...]]:
    """The weight to rank with, its expected gain and the warnings."""
    correlations = (np.asarray(value) for value in (estimate.c_b, estimate.c_s, estimate.rho))
    gain = float(objective(np.asarray(estimate.weight), *correlations)) - estimate.c_b
    if not least_agreement > 0:
        return _keep_retriever_order(
            estimate,
            f"the readout does not agree with its teacher on lists it has not seen (r = {agreement:.2f}, "
            f"95 % interval from {least_agreement:.2f})",
        )
    if estimate.method == "prior":
        return _keep_retriever_order(estimate, estimate.cause)
    chance = estimate.chance_of_gain
    if not gain > 0 or not chance >= _LEAST_CHANCE:
        return _keep_retriever_order(
            estimate,
            f"no gain over the retriever is expected (weight {estimate.weight:.2f}, gain {gain:+.3f}, "
            f"the chance of a gain is {'unknown' if np.isnan(chance) else f'{chance:.0%}'})",
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


def _queries(count: int) -> str:
    return "query" if count == 1 else "queries"


def _prior(queries: int) -> Prior | None:
    return Prior() if queries < MANY_JUDGED else None


def mean_interval(values: Floats, *, errors: float = 1.96) -> tuple[float, tuple[float, float]]:
    """A mean and the interval of `errors` standard errors around it: 1.96 are 95 %. One value has none."""
    mean = float(values.mean())
    if len(values) < 2:
        return mean, (-1.0, 1.0)
    error = errors * float(values.std(ddof=1)) / np.sqrt(len(values))
    return mean, (mean - error, mean + error)
