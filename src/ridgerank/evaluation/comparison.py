"""Two runs over the same judged queries: the paired difference, and an interval that knows of groups.

Questions about one document succeed and fail together. Where queries are grouped, whole groups are resampled;
resampling single queries would make the interval too narrow.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ridgerank.errors import ScoreError
from ridgerank.evaluation.metrics import Evaluation
from ridgerank.ragged import Floats
from ridgerank.trec import Qrels, read_text

RESAMPLES = 10_000
CONFIDENCE = 0.95
BY_DOCUMENT = "document"
_BLOCK = 1 << 22


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
    """The difference of every measure over the same judged queries; `groups` has query id → group."""
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


def group_queries(rule: str, qrels: Qrels) -> dict[str, str]:
    """Query id → group: by the document of its best judged page, or by a file of lines `query group`."""
    if rule == BY_DOCUMENT:
        return {query: _main_document(query, grades) for query, grades in qrels.items()}
    groups = _read_groups(Path(rule))
    without = [query for query in qrels if query not in groups]
    if without:
        raise ScoreError(
            f"{rule}: {len(without)} of {len(qrels)} judged queries have no group, {without[0]!r} among "
            "them; expected a line `query group` for each"
        )
    return groups


def _main_document(query: str, grades: Mapping[str, int]) -> str:
    relevant = sorted((-grade, page) for page, grade in grades.items() if grade > 0)
    # A query without a relevant page has no document: it is a group of its own.
    return relevant[0][1].rpartition("#")[0] or relevant[0][1] if relevant else f"query {query}"


def _read_groups(path: Path) -> dict[str, str]:
    groups = {}
    for number, line in enumerate(
        read_text(path, "a file of groups, or the word document", ScoreError).split("\n"), 1
    ):
        fields = line.split(maxsplit=1)
        if len(fields) == 1:
            raise ScoreError(f"{path}, line {number}: 1 field, expected 2 (query group)")
        if fields:
            groups[fields[0]] = fields[1].strip()
    return groups


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
