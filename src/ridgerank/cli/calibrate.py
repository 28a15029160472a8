"""`ridgerank calibrate`: fit the readout and the weight."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ridgerank.cli.calibration_report import print_report
from ridgerank.cli.options import (
    FOUND,
    OUTPUT,
    READING,
    BackboneName,
    CandidateCount,
    Device,
    Dtype,
    Store,
    require_store,
)
from ridgerank.records import STATES, TARGETS

if TYPE_CHECKING:
    from ridgerank.calibration.calibrate import Progress
    from ridgerank.records import Query
    from ridgerank.retrievers.base import Retriever
    from ridgerank.store.page_store import PageStore


def calibrate_command(
    store: Store,
    queries: Annotated[
        Path | None,
        typer.Option(
            help="Queries: JSON lines (query_id, text) or plain lines. [default: made from the pages]",
            rich_help_panel="Queries and judgements",
        ),
    ] = None,
    qrels: Annotated[
        Path | None,
        typer.Option(
            help="Judgements of these queries, TREC: the weight is w* of 64 judged queries or more; "
            "fewer are averaged with the estimate without judgements.",
            rich_help_panel="Queries and judgements",
        ),
    ] = None,
    weight_from: Annotated[
        str,
        typer.Option(
            help="Take w* from another store that was calibrated with --qrels: STORE, or STORE#NAME.",
            show_default=False,
            rich_help_panel="Queries and judgements",
        ),
    ] = "",
    run: Annotated[
        Path | None,
        typer.Option(
            help="Your retriever's candidates for the queries, TREC; needs --queries.", rich_help_panel=FOUND
        ),
    ] = None,
    retriever: Annotated[
        str | None,
        typer.Option(
            help="bm25, dense:NAME, a late interaction model, or several joined by +, such as stored+bm25. "
            "[default: the store's, else bm25]",
            rich_help_panel=FOUND,
        ),
    ] = None,
    name: Annotated[
        str,
        typer.Option(help="Name of the calibration: several may lie beside a store.", rich_help_panel=OUTPUT),
    ] = "default",
    candidates: CandidateCount = 20,
    count: Annotated[
        int,
        typer.Option(
            min=16, help="Queries to make where none are given.", rich_help_panel="Queries and judgements"
        ),
    ] = 32,
    make: Annotated[
        str,
        typer.Option(
            help="Make queries from the pages' text, by asking the model, or as fits best.",
            rich_help_panel="Queries and judgements",
        ),
    ] = "auto",
    documents: Annotated[
        list[Path] | None,
        typer.Option(
            help="Where the documents are now. [default: where they were indexed from]",
            rich_help_panel=READING,
        ),
    ] = None,
    target: Annotated[
        str,
        typer.Option(
            help="What to learn: margin (yes − no), likelihood (of the query), or auto.",
            rich_help_panel="What is fitted",
        ),
    ] = "auto",
    state: Annotated[
        str,
        typer.Option(
            help="Where to read: last position, mean over the query's positions, or auto.",
            rich_help_panel="What is fitted",
        ),
    ] = "auto",
    teacher: Annotated[
        str,
        typer.Option(
            help="Scores to learn: a TREC run made by any reranker, or qrels. [default: the model's own]",
            show_default=False,
            rich_help_panel="What is fitted",
        ),
    ] = "",
    backbone: BackboneName = None,
    device: Device = None,
    dtype: Dtype = None,
    weight_only: Annotated[
        bool,
        typer.Option(
            "--weight-only",
            help="Only estimate the weight again, in seconds: from the calibration's "
            "own scores and from judgements, given in the browser or with --qrels.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON, not as a table.", rich_help_panel=OUTPUT)
    ] = False,
) -> None:
    """Fit a readout and a fusion weight to a store and its retriever; no labels needed.

    Pages whose full-depth targets are known are not read again. An interrupted calibration goes on where it
    stopped.
    The report lies beside the store, as calibrations/NAME.json and NAME.png.

    With `auto`, the paper's margin at the last position is kept where the model supports it and nothing else
    is clearly better; otherwise the report says what was taken instead, and why.

    Example: `ridgerank calibrate --store pages --queries queries.jsonl`
    """
    from ridgerank.queries import read_queries
    from ridgerank.trec import read_qrels

    # All that can be refused is refused before the heavy imports.
    calibration_queries = None if queries is None else read_queries(queries)
    judgements = None if qrels is None else read_qrels(qrels)
    if judgements is not None and queries is None:
        raise typer.BadParameter("judgements need the queries they judge: --queries", param_hint="--qrels")
    query_source = _parse_choice(make, ("auto", "text", "model"), "--make")
    if weight_from and (qrels is not None or target != "auto" or state != "auto"):
        raise typer.BadParameter(
            "judgements, target and state come from the other store: leave --qrels, --target and --state out",
            param_hint="--weight-from",
        )
    if teacher and (target != "auto" or weight_from):
        raise typer.BadParameter(
            "a teacher brings its own target and needs its own weight: leave --target and --weight-from out",
            param_hint="--teacher",
        )
    target_choice = _parse_choice(target, ("auto", *TARGETS), "--target")
    state_choice = _parse_choice(state, ("auto", *STATES), "--state")
    if run is not None and queries is None:
        raise typer.BadParameter("--run needs the queries it answers: --queries", param_hint="--run")
    require_store(store)
    if weight_only and (run is not None or weight_from or retriever is not None):
        raise typer.BadParameter(
            "it takes no other source of candidates or weight", param_hint="--weight-only"
        )
    if weight_only:
        from ridgerank.cli.recalibrate import print_change, reweigh_store

        before, calibration = reweigh_store(store, name, calibration_queries, judgements)
        print_change(before, calibration)
        print_report(calibration, store, name, as_json=as_json)
        return
    from ridgerank.calibration.calibrate import calibrate as calibrate_store
    from ridgerank.store.page_store import PageStore

    queries_from = "" if queries is None else f"from {queries.name}"
    with calibration_progress() as progress, PageStore.open(store) as pages:
        candidate_source: Retriever | str | None = retriever
        if run is not None:
            candidate_source = _read_candidates(run, calibration_queries or [], pages)
        calibration = calibrate_store(
            pages,
            backbone=backbone,
            retriever=candidate_source,
            queries=calibration_queries,
            queries_from=queries_from,
            qrels=judgements,
            name=name,
            weight_from=weight_from,
            candidates=candidates,
            query_count=count,
            query_source=query_source,
            documents=documents or [],
            target=None if target_choice == "auto" else target_choice,
            state=None if state_choice == "auto" else state_choice,
            teacher=teacher,
            device=device,
            dtype=dtype,
            progress=progress,
        )
    print_report(calibration, store, name, as_json=as_json)


@contextmanager
def calibration_progress() -> "Iterator[Progress]":
    """A bar on stderr; an interruption ends the command with a line that says what is safe."""
    from ridgerank.cli.progress_bars import Bar, show_steps

    try:
        with Bar() as bar:
            yield show_steps(bar)
    except KeyboardInterrupt:
        typer.echo("\ninterrupted; targets taken so far are kept: run it again to go on", err=True)
        raise typer.Exit(130) from None


def _read_candidates(run: Path, queries: "Sequence[Query]", store: "PageStore") -> "Retriever":
    """The candidates of a run in place of a retriever."""
    from ridgerank.retrievers.hybrid import GivenCandidates
    from ridgerank.trec import read_run

    return GivenCandidates.of_run(read_run(run), queries, resolve=store.find)


def _parse_choice(value: str, choices: Sequence[str], option: str) -> Any:  # noqa: ANN401 (one of the choices)
    if value not in choices:
        raise typer.BadParameter(
            f"{value!r}, wanted {', '.join(choices[:-1])} or {choices[-1]}", param_hint=option
        )
    return value
