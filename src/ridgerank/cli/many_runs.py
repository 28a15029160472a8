"""What `ridgerank fuse` does for three or more runs: parse their weights, estimate them, report them."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ridgerank.cli.talk import say

if TYPE_CHECKING:
    from ridgerank.fusion.join import JoinedRuns
    from ridgerank.fusion.many_estimate import ManyWeights
    from ridgerank.runs.run import Run


def parse_weights(text: str, runs: int) -> list[float]:
    """`0.2,0.5,0.3` as numbers: one per run, none below 0, not all 0."""
    from ridgerank.runs.trec import parse_plain_number

    try:
        values = [parse_plain_number(part, float) for part in text.split(",")]
    except ValueError:
        values = []
    if len(values) != runs or not all(value >= 0 for value in values) or not 0 < sum(values) < math.inf:
        raise typer.BadParameter(
            f"{text!r}, wanted {runs} numbers of at least 0, not all 0, with commas between them",
            param_hint="--weights",
        )
    return values


def estimate_many_weights(
    runs: "Sequence[Run]",
    joined: "JoinedRuns",
    qrels: Path | None,
    others: Sequence[Path],
    weights: Sequence[float] | None,
    *,
    discounted: bool,
) -> "ManyWeights":
    """Weights that were given, from judgements, or from the runs and `others`, which are not fused."""
    import numpy as np

    from ridgerank.fusion.join import join
    from ridgerank.fusion.many_estimate import (
        correlate_many,
        estimate_judged_weights,
        estimate_weights_without_labels,
        user_weights,
    )
    from ridgerank.runs.trec import read_qrels, read_run

    if weights is not None:
        return user_weights(np.array(weights))
    complete = join(*runs, *(read_run(path) for path in others)).complete() if others else joined.complete()
    relevance = None if qrels is None else complete.relevance(read_qrels(qrels))
    correlations = correlate_many(complete.scores, relevance, complete.lists, discounted=discounted)
    if relevance is not None:
        return estimate_judged_weights(correlations)
    return estimate_weights_without_labels(correlations, len(runs))


def report_many_weights(estimate: "ManyWeights", joined: "JoinedRuns", names: list[str]) -> dict[str, Any]:
    """The report, a list entry per run; JSON has no NaN, so what could not be estimated is null."""
    facts: dict[str, Any] = {"runs": names, **_to_json(asdict(estimate))}
    facts["queries"] = len(joined.queries)
    facts["queries_missing"] = joined.missing_queries().tolist()
    facts["pages_missing"] = joined.missing_pages().tolist()
    return facts


def print_many_weights(facts: dict[str, Any]) -> None:
    """A line per run on stderr, then what should be known."""
    rows = zip(facts["runs"], facts["weights"], facts["weight_intervals"], strict=True)
    for name, weight, (low, high) in rows:
        spread = "" if facts["method"] == "given" else f" (95 % interval {low:.2f} to {high:.2f})"
        say(f"{name}: weight {weight:.3f}{spread}, {facts['method']}")
    if facts["note"]:
        say(f"note: {facts['note']}")
    missing = zip(facts["runs"], facts["queries_missing"], facts["pages_missing"], strict=True)
    for name, queries, pages in missing:
        if queries or pages:
            say(
                f"note: {name} lacks {queries} queries and {pages} pages of other queries; "
                "they are kept, below the fused pages"
            )


def _to_json(value: Any) -> Any:  # noqa: ANN401 (whatever JSON holds)
    if isinstance(value, dict):
        return {key: _to_json(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [_to_json(part) for part in value]
    return None if isinstance(value, float) and math.isnan(value) else value
