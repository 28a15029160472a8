"""Ranking quality, by ir_measures. A measure is a name that prints and parses: `nDCG@5`."""

from dataclasses import dataclass

import ir_measures
import numpy as np

from ridgerank.errors import ScoreError
from ridgerank.ragged import Floats
from ridgerank.trec import Qrels, Run

MEASURES = ("nDCG@5", "nDCG@10", "R@5", "R@10", "RR@10")


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
        raise ScoreError("no judgements at all; wanted at least one judged query")
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
