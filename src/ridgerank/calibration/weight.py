"""From held-out scores to the weight that is deployed, and what must be said about it.

Calibrating must not make a ranking worse than the retriever's unnoticed. So the deployed weight is
- 0, the retriever's own order, where the readout does not agree with its teacher on lists it has not seen,
  or where the estimate promises no gain over the retriever;
- 0 as well where no estimate is possible: without judgements, where the retriever does not agree with both
  others beyond chance, or where the two readings of `fusion/estimate.py` differ too much. Few
  judgements change this only where they show, beyond chance, that the readout knows relevance;
- the estimate otherwise: w* of many judgements, here or of another corpus; of few judgements averaged with
  the label-free estimate; or that alone.
Anything but the last is a warning.

`reweigh` estimates the weight again from what a calibration holds, and judgements, without running a model.
Judgements count for any query whose candidates and scores are known: those of the calibration's lists, or
lists that a server kept when somebody judged them. A page that nobody judged counts as not relevant, as
everywhere in TREC's evaluation. `transfer_weight` takes w* from the judgements of another corpus (§4), of the
same lineage and for the same retriever.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

import numpy as np

from ridgerank.calibration.artifact import DEFAULT_NAME, Calibration, ScoreLists
from ridgerank.errors import CalibrationError
from ridgerank.fusion.correlations import Correlations, correlate, correlation
from ridgerank.fusion.estimate import (
    BEYOND_CHANCE,
    LARGEST_MISFIT,
    LogRatio,
    closed_form_estimate,
    combine_readings,
    combine_with_judgements,
    estimate_by_ratio,
    label_free_estimate,
    read_misfit,
    read_ratio_from_rarity,
    read_ratio_from_teacher,
    third_moments,
)
from ridgerank.fusion.weight import WeightEstimate, fit_one_factor, objective
from ridgerank.lineage import Lineage
from ridgerank.ragged import Floats, Ragged
from ridgerank.readout.ridge import relevance_floor
from ridgerank.records import ScoredPages, State, Target
from ridgerank.store.sidecar import open_calibrations

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
    b: Floats,
    s: Floats,
    t: Floats,
    lists: Ragged,
    judged: Correlations | None,
    *,
    teacher_relevance: float | None = None,
    transferred: WeightEstimate | None = None,
) -> WeightDecision:
    """Estimate the weight from the scores of retriever, held-out readout and target, (members,) each.

    `judged` are correlations with relevance, of these lists or of others; `teacher_relevance` is c_t by the
    same judgements. A weight `transferred` from the judgements of another corpus takes the place of w* where
    there are none here.
    """
    correlations = correlate(b, s, t, lists)
    rho_bt, rho_st, rho_bs = correlations.stacked().mean(axis=0).tolist()
    paper = label_free_estimate(correlations)
    doubt = _doubt_reading(correlations)
    ratio, cause = _measure_ratio(correlations, third_moments(b, s, lists), doubt)
    label_free = _unsupported(paper, cause) if ratio is None else estimate_by_ratio(paper, ratio, rho_bs)
    estimate = closed_form = transferred
    if judged is not None:
        shown, evidence = _shows_relevance(judged)
        doubt = "" if not doubt or shown else f"{doubt}, nor do {evidence}"
        closed_form = closed_form_estimate(judged, shrink=judged.queries < MANY_JUDGED)
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
    return low > 0, f"{judged.queries} judged {'query' if judged.queries == 1 else 'queries'} ({measured})"


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


def _measure_ratio(correlations: Correlations, moments: Floats, doubt: str) -> tuple[LogRatio | None, str]:
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


def mean_interval(values: Floats, *, errors: float = 1.96) -> tuple[float, tuple[float, float]]:
    """A mean and the interval of `errors` standard errors around it: 1.96 are 95 %. One value has none."""
    mean = float(values.mean())
    if len(values) < 2:
        return mean, (-1.0, 1.0)
    error = errors * float(values.std(ddof=1)) / np.sqrt(len(values))
    return mean, (mean - error, mean + error)


HISTORY_POINTS = 24
"""How many estimates `weigh_step_by_step` makes at most."""

Grades = Mapping[str, int]
"""Page id → grade."""


@dataclass(frozen=True, slots=True)
class WeightStep:
    """The weight after some judged queries."""

    queries: int
    weight: float
    weight_interval: tuple[float, float]


def reweigh(
    calibration: Calibration, known: Mapping[str, ScoredPages], judged: Mapping[str, Grades]
) -> Calibration:
    """The calibration with the weight that judgements give, by the text of each query.

    `known` has the candidates of judged queries that are not among the calibration's own.
    """
    judged = _with_kept(calibration, judged)
    scored = _scored(calibration, known, judged)
    decision = _decide(calibration, scored, judged)
    diagnostics = replace(
        calibration.diagnostics,
        label_free=decision.label_free,
        closed_form=decision.closed_form,
        expected_gain=decision.expected_gain,
        warnings=decision.warnings,
    )
    return replace(calibration, weight=decision.deployed, diagnostics=diagnostics)


def weigh_step_by_step(
    calibration: Calibration, known: Mapping[str, ScoredPages], judged: Mapping[str, Grades]
) -> tuple[WeightEstimate, list[WeightStep]]:
    """The weight that all judgements give, and how it came about, query by query as they were judged."""
    judged = _with_kept(calibration, judged)
    scored = _scored(calibration, known, judged)
    counts = np.unique(np.linspace(0, len(scored), min(len(scored), HISTORY_POINTS) + 1).round().astype(int))
    steps: list[WeightStep] = []
    for count in counts.tolist():
        part = dict(list(scored.items())[:count])
        deployed = _decide(calibration, part, judged).deployed
        steps.append(WeightStep(count, deployed.weight, deployed.weight_interval))
    return deployed, steps


def propose_pages(pages: ScoredPages, judged: Grades, *, pool: int = 5) -> list[str]:
    """Pages to judge next: of both orders' first ones those not judged, the most disputed first.

    Only a page that the two scores place differently tells which of them to believe.
    """
    lists = Ragged.of_lengths([len(pages.page_ids)])
    ranks = [lists.ranks(np.array(scores)) for scores in (pages.retriever, pages.readout)]
    distances = np.abs(_standardized(pages.retriever) - _standardized(pages.readout))
    pooled = np.flatnonzero(np.minimum(*ranks) <= pool)
    order = sorted(pooled.tolist(), key=lambda member: -distances[member])
    return [page for page in (pages.page_ids[member] for member in order) if page not in judged]


def _with_kept(calibration: Calibration, judged: Mapping[str, Grades]) -> dict[str, Grades]:
    kept = {} if calibration.lists is None else calibration.lists.grades()
    return {text: {**judged.get(text, {}), **kept.get(text, {})} for text in dict.fromkeys([*kept, *judged])}


def _scored(
    calibration: Calibration, known: Mapping[str, ScoredPages], judged: Mapping[str, Grades]
) -> dict[str, ScoredPages]:
    """Candidates of the judged queries that have any, in the order of the judgements."""
    every = {**known, **_lists(calibration).by_query()}
    return {text: every[text] for text, grades in judged.items() if grades and text in every}


def _lists(calibration: Calibration) -> ScoreLists:
    if calibration.lists is None:
        raise CalibrationError(
            "this calibration has no lists to estimate a weight from; calibrate once more, then the weight "
            "can be estimated alone"
        )
    return calibration.lists


def _decide(
    calibration: Calibration, scored: Mapping[str, ScoredPages], judged: Mapping[str, Grades]
) -> WeightDecision:
    """The weight by the judgements of `scored`, if any of them has a relevant candidate and another one."""
    correlations = None
    if scored:
        pages = list(scored.values())
        b = np.array([score for each in pages for score in each.retriever], dtype=np.float64)
        s = np.array([score for each in pages for score in each.readout], dtype=np.float64)
        grades = [max(judged[text].get(page, 0), 0) for text in scored for page in scored[text].page_ids]
        lists = Ragged.of_lengths(len(each.page_ids) for each in pages)
        correlations = correlate(b, s, np.array(grades, dtype=np.float64), lists)
    own = _lists(calibration)
    usable = correlations if correlations is not None and correlations.queries else None
    return decide_weight(own.retriever, own.readout, own.targets, own.lists, usable)


def _standardized(scores: Sequence[float]) -> Floats:
    values = np.asarray(scores, dtype=np.float64)
    standardized: Floats = (values - values.mean()) / (values.std() or 1.0)
    return standardized


def transfer_weight(source: str, *, lineage: Lineage, retriever: str) -> tuple[WeightEstimate, Target, State]:
    """The closed-form weight, target and state of another store's calibration, `STORE` or `STORE#NAME`."""
    uri, _, name = source.partition("#")
    with open_calibrations(uri) as folder:
        calibration = Calibration.load(folder, name or DEFAULT_NAME, lineage=lineage)
    if calibration.retriever != retriever:
        raise CalibrationError(
            f"the calibration of {source} weighs the scores of {calibration.retriever!r}, expected "
            f"{retriever!r}; calibrate it for this retriever"
        )
    if calibration.target == "teacher":
        raise CalibrationError(
            f"{source} reproduces {calibration.diagnostics.teacher}, not the model's own scores, and its "
            "weight is for those; calibrate here with the same --teacher, and --qrels"
        )
    estimate = calibration.diagnostics.closed_form
    if estimate is None:
        raise CalibrationError(
            f"{source} was calibrated without judgements; calibrate it with --queries and --qrels first"
        )
    origin = f"read on the {estimate.queries_used} judged queries of {PurePath(uri).name}"
    weight = replace(estimate, note=f"{origin}; {estimate.note}" if estimate.note else origin)
    return weight, calibration.target, calibration.state
