"""The weight: eq. 4 on judgements, pulled towards equal weights by its error.

The incumbent is an equal say for every score: 0.5 behind one retriever, 1 / (n + 1) behind n of them. Judged
questions move it by their error: w = w₀ + (ŵ − w₀) τ² / (τ² + se²), where τ is how much judged weights differ
between document sets. Questions made from pages choose target and state (docs/fusion.md). The weight is 0 on
evidence that the model does not read these pages, never because an estimate is uncertain.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from ridgerank.calibration.artifact import Calibration, ScoreLists
from ridgerank.calibration.fit import CalibrationLists, QueryLists
from ridgerank.errors import CalibrationError
from ridgerank.fusion.correlations import Correlations, correlate, correlation
from ridgerank.fusion.weight import WeightEstimate, closed_form_estimate, objective, resampled_means
from ridgerank.ragged import Floats, Ragged
from ridgerank.records import ScoredPages, State, Target

BETWEEN_SETS = 0.13
"""τ: standard deviation of judged weights over document sets and models (results/quality.json)."""
LARGEST_BLIND = 0.2
"""A model whose c_s is below this, beyond chance, does not read these pages."""
LEAST_BLIND_QUESTIONS = 32
PAPER: tuple[Target, State] = ("margin", "last")
_LEAST_ERROR = 0.4
"""Standard error of a weight from one question, at least: two that agree by chance know little."""
_LEAST_SUM = 0.05
"""c_b + c_s, at least: of scores that know nothing of relevance there is no ratio."""

Reading: TypeAlias = tuple[Target, State]
Scorer: TypeAlias = Callable[[QueryLists], Floats]
"""(members,) scores of lists, each by a readout that never saw it."""


def unbounded_weight(c_b: Floats | float, c_s: Floats | float, rho: Floats | float) -> Floats:
    """Eq. 4 without its bounds: ½ + ½ (c_s − c_b) / (c_s + c_b) · (1 + ρ) / (1 − ρ)."""
    return np.asarray(0.5 + 0.5 * (c_s - c_b) / (c_s + c_b) * (1.0 + rho) / (1.0 - rho))


def judged_weight(judged: Correlations, incumbent: float = 0.5) -> WeightEstimate:
    """The weight to deploy, from correlations with judgements."""
    estimate, rows = closed_form_estimate(judged), judged.stacked()
    c_b, c_s, rho = rows.mean(axis=0).tolist()
    draws = resampled_means(rows)
    weights = unbounded_weight(draws[:, 0], np.maximum(draws[:, 1], _LEAST_SUM - draws[:, 0]), draws[:, 2])
    low, high = np.quantile(weights, [0.16, 0.84])  # outliers do not move this
    error = max(float(high - low) / 2.0, _LEAST_ERROR / np.sqrt(len(rows)))
    kept = BETWEEN_SETS**2 / (BETWEEN_SETS**2 + error**2)
    unbounded = float(unbounded_weight(c_b, max(c_s, _LEAST_SUM - c_b), rho))
    mean = incumbent + kept * (unbounded - incumbent)
    weight = float(np.clip(mean, 0.0, 1.0))
    return replace(
        estimate,
        weight=weight,
        weight_interval=_interval(mean, BETWEEN_SETS * np.sqrt(1.0 - kept)),
        chance_of_gain=float(np.mean(objective(np.asarray(weight), *draws.T) > draws[:, 0])),
    )


def equal_weight(incumbent: float = 0.5, made: Correlations | None = None) -> WeightEstimate:
    """The weight without judgements, with what made questions say of the scores."""
    weight = WeightEstimate(incumbent, _interval(incumbent, BETWEEN_SETS), "prior", interior=True)
    if made is None or not made.queries:
        return replace(weight, note="every score has an equal say: nothing was measured on these pages")
    c_b, c_s, rho = made.stacked().mean(axis=0).tolist()
    return replace(weight, c_b=c_b, c_s=c_s, rho=rho, queries_used=made.queries, queries_skipped=made.skipped)


def _interval(mean: float, deviation: float) -> tuple[float, float]:
    low, high = np.clip([mean - 1.96 * deviation, mean + 1.96 * deviation], 0.0, 1.0).tolist()
    return low, high


def shows_blindness(relevance: Floats) -> str:
    """Why the weight is 0: the upper end (95 %) of c_s (questions,) is below `LARGEST_BLIND`; else empty."""
    if len(relevance) < LEAST_BLIND_QUESTIONS:
        return ""
    mean, (_, high) = mean_interval(relevance)
    if high >= LARGEST_BLIND:
        return ""
    return (
        f"the model does not read these pages: on {len(relevance)} questions made from them its score agrees "
        f"with the right page at {mean:.2f} (95 % below {high:.2f}, expected at least {LARGEST_BLIND:g})"
    )


def find_blindness(lists: CalibrationLists, scorer: Scorer) -> str:
    """Why the weight is 0; empty if anything speaks for the model.

    Made questions must fail as they are and reordered, though the retriever finds their pages; and on queries
    that were given, the model must not agree with the retriever.
    """
    if lists.made is None or lists.reordered is None:
        return ""
    made, reordered = (_judge(each, scorer(each)) for each in (lists.made, lists.reordered))
    if lists.asked is not None:
        mutual = correlation(lists.asked.retriever, scorer(lists.asked), lists.asked.lists)
        if mean_interval(mutual)[1][1] >= LARGEST_BLIND:
            return ""
    found = bool(made.queries) and mean_interval(made.retriever)[1][0] >= LARGEST_BLIND
    if not found or not shows_blindness(made.reranker):
        return ""
    return shows_blindness(reordered.reranker)


def mean_interval(values: Floats) -> tuple[float, tuple[float, float]]:
    """A mean and its 95 % interval. One value has none."""
    mean = float(values.mean())
    if len(values) < 2:
        return mean, (-1.0, 1.0)
    error = 1.96 * float(values.std(ddof=1)) / np.sqrt(len(values))
    return mean, (mean - error, mean + error)


@dataclass(frozen=True, slots=True, eq=False)
class Weighed:
    """The reading that is deployed, its weight, and the evidence."""

    reading: Reading
    reason: str
    relevance: Mapping[Reading, float]
    """c_s of every reading, on questions that had no say in the choice; empty if nothing was measured."""
    weight: WeightEstimate
    kept: ScoreLists | None
    """The lists of queries that were given, else those of made questions, with grades that were given."""


def weigh(
    lists: CalibrationLists,
    scorers: Mapping[Reading, Scorer],
    *,
    incumbent: float = 0.5,
    keep_paper: bool = False,
) -> Weighed:
    """Choose a reading, the paper's if `keep_paper` and c_s is beyond chance, and decide its weight."""
    evidence = lists.asked if lists.judged else lists.made
    first = PAPER if PAPER in scorers else next(iter(scorers))
    if evidence is None:
        kept = _keep(lists, scorers[first])
        return Weighed(first, "nothing was measured", {}, equal_weight(incumbent), kept)
    judged = {reading: _judge(evidence, scorer(evidence)) for reading, scorer in scorers.items()}
    reading, reason = _choose_reading(judged, first if keep_paper else None)
    relevance = {each: float(rows.reranker[1::2].mean()) for each, rows in judged.items() if rows.queries > 1}
    weight = equal_weight(incumbent, None if lists.judged else judged[reading])
    if lists.judged and judged[reading].queries:
        weight = judged_weight(judged[reading], incumbent)
    if cause := find_blindness(lists, scorers[reading]):
        note = f"{cause}; the weight is 0 and pages stay in the retriever's order"
        weight = replace(weight, weight=0.0, interior=False, cause=cause, note=note)
    return Weighed(reading, reason, relevance, weight, _keep(lists, scorers[reading]))


def _keep(lists: CalibrationLists, scorer: Scorer) -> ScoreLists | None:
    kept = lists.made if lists.asked is None else lists.asked
    if kept is None:
        return None
    relevance = kept.relevance if lists.judged else None
    return ScoreLists(kept.queries, kept.page_ids, kept.lists, kept.retriever, scorer(kept), relevance)


def _judge(lists: QueryLists, scores: Floats) -> Correlations:
    assert lists.relevance is not None  # lists of made questions and judged ones have it
    return correlate(lists.retriever, scores, lists.relevance, lists.lists)


def _choose_reading(judged: Mapping[Reading, Correlations], kept: Reading | None) -> tuple[Reading, str]:
    """The reading of largest c_s on every other question, or the one to keep if its c_s is beyond chance."""
    if kept is not None:
        rows = judged[kept].reranker
        if len(judged) == 1 or not len(rows) or mean_interval(rows)[1][0] > 0:
            return kept, "the paper's reading"
    best = max(judged, key=lambda reading: float(judged[reading].reranker[::2].sum()))
    if len(judged) == 1:
        return best, "the only reading"
    return best, "agrees best with the right pages on half of the questions"


Grades = Mapping[str, int]


def reweigh(
    calibration: Calibration, known: Mapping[str, ScoredPages], judged: Mapping[str, Grades]
) -> Calibration:
    """The calibration at the weight that judgements give; `known` has candidates of other judged queries."""
    if calibration.lists is None:
        raise CalibrationError(
            "this calibration has no lists to estimate a weight from; calibrate once more, then the weight "
            "can be estimated alone"
        )
    kept, every = calibration.lists.grades(), {**known, **calibration.lists.by_query()}
    grades = {text: {**judged.get(text, {}), **kept.get(text, {})} for text in [*kept, *judged]}
    pages = {text: every[text] for text, given in grades.items() if given and text in every}
    lists = Ragged.of_lengths(len(each.page_ids) for each in pages.values())
    b = np.array([score for each in pages.values() for score in each.retriever])
    s = np.array([score for each in pages.values() for score in each.readout])
    y = [max(grades[text].get(page, 0), 0) for text, each in pages.items() for page in each.page_ids]
    correlations = correlate(b, s, np.array(y, dtype=np.float64), lists)
    if not correlations.queries:
        return calibration
    return replace(calibration, weight=judged_weight(correlations, calibration.diagnostics.incumbent))
