"""`ridgerank evaluate`: how good is a run."""

import json
from pathlib import Path
from typing import Annotated

import typer


def evaluate_command(
    run: Annotated[Path, typer.Argument(help="TREC run to evaluate.", show_default=False)],
    qrels: Annotated[Path, typer.Option(help="Graded relevance judgements, TREC.", show_default=False)],
    per_query: Annotated[
        bool, typer.Option("--per-query", help="Also a line of JSON for every query.")
    ] = False,
) -> None:
    """Print nDCG@5, nDCG@10, R@5, R@10 and RR@10 of a run, in percent, as JSON.

    A judged query the run does not answer counts as 0; a query nobody judged does not count. Both are
    counted on stderr.

    Example: `ridgerank evaluate fused.trec --qrels qrels.trec`
    """
    from ridgerank.evaluation.metrics import evaluate as measure
    from ridgerank.runs.trec import read_qrels, read_run

    result = measure(read_run(run), read_qrels(qrels))
    if per_query:
        for number, query in enumerate(result.queries):
            values = zip(result.measures, result.values[:, number].tolist(), strict=True)
            typer.echo(json.dumps({"query": query, **dict(values)}, ensure_ascii=False))
    typer.echo(json.dumps(result.means()))
    if result.queries_missing:
        typer.echo(
            f"note: {result.queries_missing} judged queries are not in the run; they count as 0", err=True
        )
    if result.queries_unjudged:
        typer.echo(f"note: {result.queries_unjudged} queries of the run are not judged; left out", err=True)
