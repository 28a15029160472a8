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
    Ray,
    Store,
    Workers,
    require_store,
)
from ridgerank.cli.talk import say
from ridgerank.records import STATES, TARGETS

if TYPE_CHECKING:
    from ridgerank.cli.progress_bars import CalibrationProgress
    from ridgerank.records import Query
    from ridgerank.retrievers.base import Retriever
    from ridgerank.scaleout.ray_calibration import RayExecutor
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
            help="Whose scores to learn: a TREC run or qrels, another backbone, or a cross encoder. "
            "[default: the model's own]",
            show_default=False,
            rich_help_panel="What is fitted",
        ),
    ] = "",
    backbone: BackboneName = None,
    device: Device = None,
    dtype: Dtype = None,
    ray: Ray = None,
    workers: Workers = None,
    weight_only: Annotated[
        bool,
        typer.Option(
            "--weight-only",
            help="Only estimate the weight and the probabilities again, in seconds: from the calibration's "
            "own scores and from judgements, given in the browser or with --qrels.",
        ),
    ] = False,
    traffic: Annotated[
        Path | None,
        typer.Option(
            help="Calibrate anew on what a server logged (serve --traffic-log), and show old against new. "
            "Where the old one rests on judgements, the new one is saved beside it.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON, not as a table.", rich_help_panel=OUTPUT)
    ] = False,
) -> None:
    """Fit a readout and a fusion weight to a store and its retriever; no labels needed.

    Pages whose full-depth targets are known are not read again: after `index --calibrate`, none are for the
    same queries; other queries have other candidates. An interrupted calibration goes on where it stopped.
    The report lies beside the store, as calibrations/NAME.json and NAME.png.

    With `auto`, the paper's margin at the last position is kept where the model supports it and nothing else
    is clearly better; otherwise the report says what was taken instead, and why.

    Example: `ridgerank calibrate --store pages --queries queries.jsonl`
    """
    from ridgerank.runs.queries import read_queries
    from ridgerank.runs.trec import read_qrels

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
    sources = (run is not None, bool(weight_from), retriever is not None, weight_only, traffic is not None)
    if (weight_only or traffic is not None) and sum(sources) > 1:
        raise typer.BadParameter(
            "--weight-only and --traffic take no other source of candidates or weight, nor each other",
            param_hint="--weight-only" if weight_only else "--traffic",
        )
    if weight_only:
        from ridgerank.cli.recalibrate import print_change, reweigh_store

        before, calibration = reweigh_store(store, name, calibration_queries, judgements)
        print_change(before, calibration)
        print_report(calibration, store, name, as_json=as_json)
        return
    from ridgerank.calibration.calibrate import calibrate as calibrate_store
    from ridgerank.cli.recalibrate import name_for_traffic, print_change, read_traffic_for
    from ridgerank.store.page_store import PageStore

    queries_from = "" if queries is None else f"from {queries.name}"
    retriever_source = ""
    with (
        calibration_progress() as hook,
        PageStore.open(store) as pages,
        _ray_executor(pages, backbone, ray, workers, device=device, dtype=dtype) as executor,
    ):
        candidate_source: Retriever | str | None = retriever
        if run is not None:
            candidate_source = _read_candidates(run, calibration_queries or [], pages)
        if traffic is not None:
            before, logged = read_traffic_for(pages, traffic, name, count)
            name = name_for_traffic(before, name)
            calibration_queries, candidate_source = list(logged.queries), logged.candidates
            queries_from, retriever_source = f"searched for ({traffic.name})", before.retriever_source
        calibration = calibrate_store(
            pages,
            backbone=backbone,
            retriever=candidate_source,
            retriever_source=retriever_source,
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
            executor=executor,
            hook=hook,
        )
    if traffic is not None:
        print_change(before, calibration)
    print_report(calibration, store, name, as_json=as_json)


@contextmanager
def calibration_progress() -> "Iterator[CalibrationProgress]":
    """A bar on stderr; an interruption ends the command with a line that says what is safe."""
    from ridgerank.cli.progress_bars import Bar, CalibrationProgress

    try:
        with Bar() as bar:
            yield CalibrationProgress(bar)
    except KeyboardInterrupt:
        typer.echo("\ninterrupted; targets taken so far are kept: run it again to go on", err=True)
        raise typer.Exit(130) from None


@contextmanager
def _ray_executor(
    store: "PageStore",
    backbone: str | None,
    address: str | None,
    workers: int | None,
    *,
    device: str | None,
    dtype: str | None,
) -> "Iterator[RayExecutor | None]":
    """The workers of a cluster, with the model the store was made with; None without an address."""
    if address is None:
        yield None
        return
    from ridgerank.backbones.model_settings import ModelSettings
    from ridgerank.scaleout.ray_calibration import RayExecutor
    from ridgerank.scaleout.ray_cluster import connect_ray, plan_workers

    model = ModelSettings.from_lineage(store.lineage, name=backbone, device=device, dtype=dtype)
    with connect_ray(address) as cluster:
        cluster_workers = plan_workers(cluster, workers, device)
        say(f"Ray at {address}: {cluster_workers.count} workers")
        yield RayExecutor(store.uri, model, cluster_workers)


def _read_candidates(run: Path, queries: "Sequence[Query]", store: "PageStore") -> "Retriever":
    """The candidates of a run in place of a retriever."""
    from ridgerank.retrievers.given_candidates import GivenCandidates
    from ridgerank.runs.trec import read_run

    return GivenCandidates.of_run(read_run(run), queries, resolve=store.find)


def _parse_choice(value: str, choices: Sequence[str], option: str) -> Any:  # noqa: ANN401 (one of the choices)
    if value not in choices:
        raise typer.BadParameter(
            f"{value!r}, wanted {', '.join(choices[:-1])} or {choices[-1]}", param_hint=option
        )
    return value
