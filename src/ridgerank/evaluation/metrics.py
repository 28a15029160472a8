"""How good a run is (by ir_measures), whether another one is better, and whether a reranker is worth it.

A measure is a name that prints and parses: `nDCG@5`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import ir_measures
import numpy as np
from scipy.special import stdtrit

from ridgerank.errors import ScoreError
from ridgerank.ragged import Floats
from ridgerank.trec import Qrels, Run

MEASURES = ("nDCG@5", "nDCG@10", "R@5", "R@10", "RR@10")
RESAMPLES = 10_000
CONFIDENCE = 0.95
_BLOCK = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Every measure for every judged query, in percent."""

    queries: tuple[str, ...]
    """All judged queries; one that the run lacks counts as 0, and is counted."""
    measures: tuple[str, ...]
    values: Floats
    """(measures, queries), percent."""
    queries_missing: int
    """Judged queries that the run does not answer."""
    queries_unjudged: int
    """Queries of the run without judgements: they do not count."""

    def means(self) -> dict[str, float]:
        """Measure → mean over the judged queries, percent."""
        return dict(zip(self.measures, self.values.mean(axis=1).tolist(), strict=True))

    def of(self, measure: str) -> Floats:
        """(queries,) values of one measure, percent."""
        return np.asarray(self.values[self.measures.index(measure)])


def evaluate(run: Run, qrels: Qrels, measures: tuple[str, ...] = MEASURES) -> Evaluation:
    """Evaluate a run in its own order, so that equal or nearly equal scores cannot be re-ordered."""
    if not qrels:
        raise ScoreError("no judgements at all; expected at least one judged query")
    ranked: dict[str, dict[str, float]] = {}
    for query, page, rank, _ in run.rows():
        if query in qrels:
            ranked.setdefault(query, {})[page] = -float(rank)
    parsed = [ir_measures.parse_measure(name) for name in measures]
    row = {measure: number for number, measure in enumerate(parsed)}
    column = {query: number for number, query in enumerate(qrels)}
    values = np.zeros((len(parsed), len(qrels)))
    if ranked:
        for metric in ir_measures.iter_calc(parsed, qrels, ranked):
            values[row[metric.measure], column[metric.query_id]] = 100.0 * metric.value
    return Evaluation(
        queries=tuple(qrels),
        measures=measures,
        values=values,
        queries_missing=len(qrels) - len(ranked),
        queries_unjudged=len(run) - len(ranked),
    )


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Second run minus first, of one measure, in points of percent."""

    measure: str
    difference: float
    interval: tuple[float, float]
    """95 %, bootstrap over groups of queries; the difference itself where there are fewer than two groups."""
    share_above: float
    """Share of the resamples in which the second run is better."""
    groups: int
    """What was resampled: groups, or single queries."""


def compare_evaluations(
    first: Evaluation, second: Evaluation, *, groups: Mapping[str, str] | None = None
) -> tuple[PairedDifference, ...]:
    """The difference of every measure over the same judged queries.

    `groups` has query id → group. Whole groups are resampled: their queries succeed and fail together, and
    resampling single ones would make the interval too narrow.
    """
    if first.queries != second.queries or first.measures != second.measures:
        raise ScoreError("the two evaluations are of other queries or measures; evaluate both alike")
    names = [query if groups is None else groups[query] for query in first.queries]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    rows = np.array([numbers[name] for name in names])
    sizes = np.bincount(rows).astype(np.float64)
    differences = second.values - first.values
    totals = np.array([np.bincount(rows, weights=values) for values in differences])
    draws = _resampled_means(totals, sizes)
    tail = (1.0 - CONFIDENCE) / 2.0
    return tuple(
        PairedDifference(
            measure=measure,
            difference=float(values.mean()),
            interval=(float(np.quantile(drawn, tail)), float(np.quantile(drawn, 1.0 - tail))),
            share_above=float(np.mean(drawn > 0)),
            groups=len(numbers),
        )
        for measure, values, drawn in zip(first.measures, differences, draws, strict=True)
    )


def group_by_document(qrels: Qrels) -> dict[str, str]:
    """Query id → the document of its best judged page; a query without a relevant page is its own group."""
    return {query: _main_document(query, grades) for query, grades in qrels.items()}


def _main_document(query: str, grades: Mapping[str, int]) -> str:
    relevant = sorted((-grade, page) for page, grade in grades.items() if grade > 0)
    return relevant[0][1].rpartition("#")[0] or relevant[0][1] if relevant else f"query {query}"


def _resampled_means(totals: Floats, sizes: Floats) -> Floats:
    """(measures, resamples): mean over the queries of groups drawn with replacement."""
    generator = np.random.default_rng(0)  # fixed: the same runs give the same interval
    count = len(sizes)
    block = max(1, _BLOCK // count)
    parts = []
    for start in range(0, RESAMPLES, block):
        draws = generator.multinomial(count, np.full(count, 1.0 / count), size=min(block, RESAMPLES - start))
        parts.append((totals @ draws.T) / (draws @ sizes))
    return np.concatenate(parts, axis=1)


Outcome = Literal["worth it", "not worth it", "cannot tell yet"]
LEAST_GAIN = 1.0
"""Points below which a gain is not worth a model."""
MOST_QUESTIONS = 500
"""More than this nobody judges: the answer is then "over 500"."""
_NORMAL = 1.96


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a trial says, and from what."""

    outcome: Outcome
    sentence: str
    gain: float
    """Points of the measure."""
    interval: tuple[float, float]
    """95 %, documents resampled."""
    questions: int
    documents: int
    questions_needed: int | None
    """Judged questions that would tell, at this gain and spread; None if it told, or if no number would."""


def widen(difference: PairedDifference) -> PairedDifference:
    """The interval widened by Student's t: resampling few documents understates the error."""
    if difference.groups < 2:
        return replace(difference, interval=(-100.0, 100.0))
    wider = float(stdtrit(difference.groups - 1, 0.975)) / _NORMAL
    low, high = (difference.difference + wider * (end - difference.difference) for end in difference.interval)
    return replace(difference, interval=(low, high))


def reach_verdict(
    difference: PairedDifference, *, questions: int, made: bool = False, blind: str = ""
) -> Verdict:
    """Judge a widened difference; `blind` says why the weight is 0, if it is.

    Questions that were `made` from the pages flatter one side or the other, so that they can speak against a
    model and never plainly for it.
    """
    gain, documents, (low, high) = difference.difference, difference.groups, difference.interval
    shown = f"{gain:+.1f} points of {difference.measure} ({low:+.1f} to {high:+.1f})"
    outcome: Outcome = "cannot tell yet"
    needed: int | None = None
    if blind:
        outcome, sentence = "not worth it", f"Not worth it with this model: {blind}."
    elif low > 0 and not made:
        outcome, sentence = "worth it", f"Worth it: reranking gains {shown}."
    elif low > 0:
        sentence = f"Reranking gains {shown}; judge some of your own to know."
    elif high < LEAST_GAIN:
        outcome, sentence = "not worth it", f"Not worth it: reranking gives {shown}."
    else:
        half = (high - low) / 2.0
        count = questions * (half / gain) ** 2 if gain > 0 else float("inf")
        needed = round(count) if count <= MOST_QUESTIONS else None
        tells = f"about {needed}" if needed else f"over {MOST_QUESTIONS}"
        sentence = f"Cannot tell yet: reranking gives {shown}; {tells} judged questions would tell."
    if made and not blind:
        sentence = f"On questions made from your pages: {sentence[0].lower()}{sentence[1:]}"
    return Verdict(outcome, sentence, gain, (low, high), questions, documents, needed)
