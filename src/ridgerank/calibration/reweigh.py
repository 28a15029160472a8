"""Weight and probabilities estimated again from what a calibration holds, and judgements: no model is run.

The estimate without judgements comes from the calibration's own lists. Judgements count for any query whose
candidates and scores are known: those lists, or lists that a server kept when somebody judged them. A page
that nobody judged counts as not relevant, as everywhere in TREC's evaluation. Judgements that a calibration
was made with stay with its lists, and count besides those given now; where both judge a page, those count.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ridgerank.calibration.artifact import Calibration
from ridgerank.calibration.fusion_weight import WeightDecision, decide_from_scores
from ridgerank.calibration.relevance_fit import refit_probabilities, withhold_probabilities
from ridgerank.calibration.relevance_model import RelevanceModel
from ridgerank.errors import CalibrationError
from ridgerank.fusion.correlations import Correlations, correlate
from ridgerank.fusion.estimate import WeightEstimate
from ridgerank.ragged import Floats, Ragged
from ridgerank.records import ScoredPages

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
    """The calibration with the weight and probabilities that judgements give, by the text of each query.

    `known` has the candidates of judged queries that are not among the calibration's own.
    """
    judged = _with_kept(calibration, judged)
    scored = _scored(calibration, known, judged)
    decision = _decide(calibration, judged_correlations(scored, judged))
    relevance = _refit_relevance(calibration, scored, judged)
    diagnostics = replace(
        calibration.diagnostics,
        label_free=decision.label_free,
        closed_form=decision.closed_form,
        expected_gain=decision.expected_gain,
        warnings=decision.warnings,
    )
    return replace(
        calibration,
        weight=decision.deployed,
        diagnostics=diagnostics,
        relevance=None if relevance is None else withhold_probabilities(relevance, decision.doubt),
    )


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
        deployed = _decide(calibration, judged_correlations(part, judged)).deployed
        steps.append(WeightStep(count, deployed.weight, deployed.weight_interval))
    return deployed, steps


def judged_correlations(
    scored: Mapping[str, ScoredPages], judged: Mapping[str, Grades]
) -> Correlations | None:
    """c_b, c_s and ρ of judged queries; None where none has a relevant candidate and another one."""
    if not scored:
        return None
    lists = Ragged.of_lengths(len(pages.page_ids) for pages in scored.values())
    retriever, readout = (
        np.array([score for pages in scored.values() for score in getattr(pages, part)], dtype=np.float64)
        for part in ("retriever", "readout")
    )
    correlations = correlate(retriever, readout, _relevance(scored, judged), lists)
    return correlations if correlations.queries else None


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
    if calibration.lists is None:
        raise CalibrationError(
            "this calibration is of an older release, which kept no scores of its lists; calibrate once "
            "more, then the weight can be estimated alone"
        )
    every = {**known, **calibration.lists.by_query()}
    return {text: every[text] for text, grades in judged.items() if grades and text in every}


def _refit_relevance(
    calibration: Calibration, scored: Mapping[str, ScoredPages], judged: Mapping[str, Grades]
) -> RelevanceModel | None:
    """Probabilities fitted to the judgements, unless they were fitted to more judged queries before."""
    before = calibration.relevance
    predicted = {text: pages.predicted for text, pages in scored.items() if pages.predicted is not None}
    if before is None or not predicted:
        return before
    after = refit_probabilities(
        before,
        np.concatenate([np.array(values) for values in predicted.values()]),
        Ragged.of_lengths(len(values) for values in predicted.values()),
        _relevance({text: scored[text] for text in predicted}, judged),
        calibration.target,
    )
    return after if after.judged_queries >= before.judged_queries else before


def _relevance(scored: Mapping[str, ScoredPages], judged: Mapping[str, Grades]) -> Floats:
    """(members,): the grade of each candidate, 0 where nobody judged it."""
    return np.array(
        [max(judged[text].get(page, 0), 0) for text, pages in scored.items() for page in pages.page_ids],
        dtype=np.float64,
    )


def _decide(calibration: Calibration, judged: Correlations | None) -> WeightDecision:
    lists = calibration.lists
    if lists is None:
        raise CalibrationError("no lists to estimate a weight from")
    return decide_from_scores(lists.retriever, lists.readout, lists.targets, lists.lists, judged)


def _standardized(scores: Sequence[float]) -> Floats:
    values = np.asarray(scores, dtype=np.float64)
    standardized: Floats = (values - values.mean()) / (values.std() or 1.0)
    return standardized
