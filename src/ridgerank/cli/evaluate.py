"""`ridgerank evaluate`: how good is a run, and is another one better."""

import json
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from ridgerank.cli._console import WIDTH, echo
from ridgerank.trec import read_qrels, read_run

if TYPE_CHECKING:
    from ridgerank.evaluation.metrics import Evaluation, PairedDifference

Change: TypeAlias = "tuple[str, Evaluation, Evaluation, PairedDifference]"
"""A name, what was before, what is after, and the difference of the first measure."""


def evaluate_command(
    runs: Annotated[list[Path], typer.Argument(help="TREC run to evaluate, or several to compare.")],
    qrels: Annotated[Path, typer.Option(help="Graded relevance judgements, TREC.")],
    by_document: Annotated[
        bool,
        typer.Option(
            "--by-document", help="Resample documents, not queries: those of one document go together."
        ),
    ] = False,
    per_query: Annotated[
        bool, typer.Option("--per-query", help="Also a line of JSON for every query.")
    ] = False,
) -> None:
    """Print nDCG@5, nDCG@10, R@5, R@10 and RR@10 of a run, in percent, as JSON.

    With several runs, each has a line; then follow the paired differences to the first, with 95 % intervals.

    A judged query the run does not answer counts as 0; a query nobody judged does not count. Both are
    counted on stderr.

    Example: `ridgerank evaluate fused.trec --qrels qrels.trec`

    Example: `ridgerank evaluate bm25.trec fused.trec --qrels qrels.trec --by-document`
    """
    from ridgerank.evaluation.metrics import compare_evaluations, group_by_document
    from ridgerank.evaluation.metrics import evaluate as measure
    from ridgerank.records import to_json

    judgements = read_qrels(qrels)
    groups = group_by_document(judgements) if by_document else None
    contents = [read_run(run) for run in runs]
    evaluations = [measure(content, judgements) for content in contents]
    judged_pages = {page for pages in judgements.values() for page in pages}
    for run, content, result in zip(runs, contents, evaluations, strict=True):
        if judged_pages and judged_pages.isdisjoint(content.vocabulary):
            echo(
                f"note: {run}: none of its pages is judged. It names pages like {min(content.vocabulary)!r}, "
                f"{qrels} like {min(judged_pages)!r}"
            )
        label = {"run": str(run)} if len(runs) > 1 else {}
        for number, query in enumerate(result.queries if per_query else ()):
            values = zip(result.measures, result.values[:, number].tolist(), strict=True)
            _print_line({**label, "query": query, **dict(values)})
        _print_line({**label, **result.means()})
        prefix = f"note: {run}: " if label else "note: "
        if result.queries_missing:
            echo(f"{prefix}{result.queries_missing} judged queries are not in the run; they count as 0")
        if result.queries_unjudged:
            echo(f"{prefix}{result.queries_unjudged} queries of the run are not judged; left out")
    rows: list[Change] = []
    for run, result in zip(runs[1:], evaluations[1:], strict=True):
        differences = compare_evaluations(evaluations[0], result, groups=groups)
        _print_line(
            {
                "run": str(run),
                "minus": str(runs[0]),
                "resampled": f"{differences[0].groups} {'documents' if by_document else 'queries'}",
                "differences": {each.measure: to_json(each) for each in differences},
            }
        )
        rows.append((str(run), evaluations[0], result, differences[0]))
    if rows:
        echo(format_changes(rows))


def format_changes(rows: "Sequence[Change]") -> str:
    """A table: each measure before → after, and the difference of the first with its interval."""
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for title in ("", *rows[0][1].measures, f"{rows[0][3].measure}, points (95 %)"):
        table.add_column(title, no_wrap=True)
    for name, before, after, difference in rows:
        first, second = before.means(), after.means()
        low, high = difference.interval
        changes = [f"{first[measure]:.1f} → {second[measure]:.1f}" for measure in first]
        table.add_row(name, *changes, f"{difference.difference:+.1f} ({low:+.1f} to {high:+.1f})")
    content = StringIO()
    Console(file=content, width=WIDTH).print(table)
    return content.getvalue().rstrip()


def _print_line(record: dict[str, Any]) -> None:
    typer.echo(json.dumps(record, ensure_ascii=False))
