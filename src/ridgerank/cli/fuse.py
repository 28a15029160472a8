"""`ridgerank fuse`: two runs become one."""

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ridgerank.cli.options import require_tag

if TYPE_CHECKING:
    from ridgerank.fusion.estimate import WeightEstimate
    from ridgerank.fusion.join import JoinedRuns
    from ridgerank.runs.run import Run


def fuse_command(
    retriever: Annotated[Path, typer.Argument(help="TREC run of the retriever.", show_default=False)],
    reranker: Annotated[Path, typer.Argument(help="TREC run of the reranker.", show_default=False)],
    qrels: Annotated[
        Path | None, typer.Option(help="Relevance judgements: the weight is w* in closed form.")
    ] = None,
    third: Annotated[
        Path | None,
        typer.Option(help="A third run (the full model's scores): the weight is estimated without labels."),
    ] = None,
    weight: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="A weight you know: 0 retriever, 1 reranker.")
    ] = None,
    shrink: Annotated[
        bool, typer.Option("--shrink", help="Pull the estimate towards a cautious prior; for few queries.")
    ] = False,
    uniform: Annotated[
        bool, typer.Option("--uniform", help="Weigh all ranks alike, not by the ranking metric's discount.")
    ] = False,
    report: Annotated[
        Path | None, typer.Option(help="Write the weight and its reasons here, as JSON.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write the fused run here (whole or not at all), not to stdout.")
    ] = None,
    tag: Annotated[str, typer.Option(help="Name of the fused run, its last column.")] = "ridgerank",
) -> None:
    """Fuse a retriever's run with a reranker's at the best weight.

    Both scores are standardized within each query and added as (1 − w)·retriever + w·reranker. Say where
    w comes from with exactly one of --qrels, --third and --weight.

    Pages only one run has are kept below the fused ones and counted in the report.

    Example: `ridgerank fuse colpali.trec readout.trec --third teacher.trec --report r.json > fused.trec`
    """
    from ridgerank.atomic import replace_text_file
    from ridgerank.fusion.join import fuse_runs, join
    from ridgerank.runs.trec import read_run, write_run

    if sum(source is not None for source in (qrels, third, weight)) != 1:
        raise typer.BadParameter("give exactly one of --qrels, --third and --weight: where w comes from")
    require_tag(tag)
    runs = (read_run(retriever), read_run(reranker))
    joined = join(*runs)
    estimate = _estimate(runs, joined, qrels, third, weight, shrink=shrink, discounted=not uniform)
    fused = fuse_runs(joined, estimate.weight)
    facts = _make_report(estimate, joined)
    if report is not None:
        with replace_text_file(report) as file:
            file.write(json.dumps(facts, indent=2, ensure_ascii=False) + "\n")
    if output is not None:
        with replace_text_file(output) as file:
            write_run(fused, file, tag=tag)
    else:
        write_run(fused, sys.stdout, tag=tag)
    _print_summary(facts)


def _estimate(
    runs: "tuple[Run, Run]",
    joined: "JoinedRuns",
    qrels: Path | None,
    third: Path | None,
    weight: float | None,
    *,
    shrink: bool,
    discounted: bool,
) -> "WeightEstimate":
    from ridgerank.fusion.correlations import correlate
    from ridgerank.fusion.estimate import closed_form_estimate, label_free_estimate, user_estimate
    from ridgerank.fusion.join import join
    from ridgerank.fusion.prior import Prior
    from ridgerank.runs.trec import read_qrels, read_run

    prior = Prior() if shrink else None
    if weight is not None:
        return user_estimate(weight)
    if qrels is not None:
        complete = joined.complete()
        b, s = complete.scores
        relevance = complete.relevance(read_qrels(qrels))
        correlations = correlate(b, s, relevance, complete.lists, discounted=discounted)
        return closed_form_estimate(correlations, prior=prior)
    assert third is not None
    complete = join(*runs, read_run(third)).complete()
    b, s, t = complete.scores
    correlations = correlate(b, s, t, complete.lists, discounted=discounted)
    return label_free_estimate(correlations, prior=prior)


def _make_report(estimate: "WeightEstimate", joined: "JoinedRuns") -> dict[str, Any]:
    """The report. JSON has no NaN, so values that could not be estimated are null."""
    facts: dict[str, Any] = {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in asdict(estimate).items()
    }
    facts |= _partial_correlations(estimate)
    facts["queries"] = len(joined.queries)
    for name, queries, pages in zip(
        ("retriever", "reranker"),
        joined.missing_queries().tolist(),
        joined.missing_pages().tolist(),
        strict=True,
    ):
        facts[f"queries_missing_from_{name}"] = queries
        facts[f"pages_missing_from_{name}"] = pages
    return facts


def _partial_correlations(estimate: "WeightEstimate") -> dict[str, float | None]:
    """The partial correlation of each score with relevance given the other; `interior`: both are positive."""
    import numpy as np

    from ridgerank.fusion.weight import partial_correlations

    c_b, c_s, rho = (np.asarray(value) for value in (estimate.c_b, estimate.c_s, estimate.rho))
    values = partial_correlations(c_b, c_s, rho)
    names = ("partial_correlation_retriever", "partial_correlation_reranker")
    return {
        name: None if np.isnan(value) else float(value) for name, value in zip(names, values, strict=True)
    }


def _print_summary(facts: dict[str, Any]) -> None:
    low, high = facts["weight_interval"]
    spread = "" if facts["method"] == "given" else f" (95 % interval {low:.2f} to {high:.2f})"
    typer.echo(f"weight {facts['weight']:.3f}{spread}, {facts['method']}", err=True)
    if facts["note"]:
        typer.echo(f"note: {facts['note']}", err=True)
    for name in ("retriever", "reranker"):
        queries, pages = facts[f"queries_missing_from_{name}"], facts[f"pages_missing_from_{name}"]
        if queries or pages:
            typer.echo(
                f"note: the {name} lacks {queries} queries and {pages} pages of other queries; "
                "they are kept, below the fused pages",
                err=True,
            )
