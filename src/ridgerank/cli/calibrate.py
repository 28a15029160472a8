"""`ridgerank calibrate`: fit the readout and the weight."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ridgerank.cli.cluster_options import Ray, Workers

if TYPE_CHECKING:
    from ridgerank.backbones.base import Backbone
    from ridgerank.calibration.artifact import Calibration
    from ridgerank.calibration.calibrate import CalibrationRequest
    from ridgerank.records import Query
    from ridgerank.retrievers.base import Retriever
    from ridgerank.scaleout.ray_calibration import RayExecutor
    from ridgerank.store.page_store import PageStore

Store = Annotated[str, typer.Option(help="Folder or URL of the page store.", show_default=False)]
BackboneName = Annotated[
    str | None, typer.Option("--backbone", help="Model. [default: the one the store was made with]")
]
Device = Annotated[str | None, typer.Option(help="cuda, mps or cpu. [default: the best there is]")]
Dtype = Annotated[
    str | None, typer.Option(help="float32, bfloat16 or float16. [default: what suits the device]")
]


def calibrate(
    store: Store,
    queries: Annotated[
        Path | None,
        typer.Option(
            help="Queries: JSON lines (query_id, text) or plain lines. [default: made from the pages]"
        ),
    ] = None,
    qrels: Annotated[
        Path | None, typer.Option(help="Judgements of these queries, TREC: the weight is then w*.")
    ] = None,
    weight_from: Annotated[
        str,
        typer.Option(
            help="Take w* from another store that was calibrated with --qrels: STORE, or STORE#NAME.",
            show_default=False,
        ),
    ] = "",
    run: Annotated[
        Path | None, typer.Option(help="Your retriever's candidates for the queries, TREC; needs --queries.")
    ] = None,
    retriever: Annotated[
        str | None,
        typer.Option(help="bm25, dense:NAME or a late interaction model. [default: the store's, else bm25]"),
    ] = None,
    name: Annotated[
        str, typer.Option(help="Name of the calibration: several may lie beside a store.")
    ] = "default",
    candidates: Annotated[int, typer.Option(min=2, help="Candidate pages a query.")] = 20,
    count: Annotated[int, typer.Option(min=16, help="Queries to make where none are given.")] = 32,
    make: Annotated[
        str, typer.Option(help="Make queries from the pages' text, by asking the model, or as fits best.")
    ] = "auto",
    documents: Annotated[
        list[Path] | None,
        typer.Option(help="Where the documents are now. [default: where they were indexed from]"),
    ] = None,
    target: Annotated[
        str, typer.Option(help="What to learn: margin (yes − no), likelihood (of the query), or auto.")
    ] = "auto",
    state: Annotated[
        str, typer.Option(help="Where to read: last position, mean over the query's positions, or auto.")
    ] = "auto",
    backbone: BackboneName = None,
    device: Device = None,
    dtype: Dtype = None,
    ray: Ray = None,
    workers: Workers = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON, not as a table.")
    ] = False,
) -> None:
    """Fit a readout and a fusion weight to a store and its retriever; no labels needed.

    Pages whose full-depth targets are known are not read again: after `index --calibrate`, none are. An
    interrupted calibration goes on where it stopped. The report lies beside the store, as
    calibrations/NAME.json and NAME.png.

    With `auto`, the paper's margin at the last position is kept where the model supports it and nothing else
    is clearly better; otherwise the report says what was taken instead, and why.

    Example: `ridgerank calibrate --store pages --queries queries.jsonl`
    """
    asked, origin = read_given(queries)
    request = request_for(asked, origin, qrels, name, candidates, count, make, documents)
    if weight_from and (qrels is not None or target != "auto" or state != "auto"):
        raise typer.BadParameter(
            "judgements, target and state come from the other store: leave --qrels, --target and --state out",
            param_hint="--weight-from",
        )
    request = replace(_read_as(request, target, state), weight_from=weight_from)
    if run is not None and queries is None:
        raise typer.BadParameter("--run needs the queries it answers: --queries", param_hint="--run")
    fit(
        store,
        backbone,
        request,
        retriever,
        run,
        device=device,
        dtype=dtype,
        as_json=as_json,
        cluster=None if ray is None else (ray, workers),
    )


def fit(
    store: str,
    backbone: "Backbone | str | None",
    request: "CalibrationRequest",
    retriever: str | None,
    run: Path | None,
    *,
    device: str | None,
    dtype: str | None,
    as_json: bool,
    cluster: tuple[str, int | None] | None = None,
) -> None:
    """Calibrate with a bar on stderr and print the report; `cluster` is Ray's address and its workers."""
    from ridgerank.calibration.calibrate import calibrate as calibrate_store
    from ridgerank.calibration.calibrate import calibrate_with
    from ridgerank.cli.model_options import backbone_for
    from ridgerank.cli.progress_bars import Bar, CalibrationProgress
    from ridgerank.store.page_store import PageStore

    try:
        with PageStore.open(store) as opened, Bar() as bar:
            found = _retriever(opened, retriever, run, request.queries, device=device, dtype=dtype)
            source = "" if run is not None else _source(opened, retriever)
            request = replace(request, retriever_source=source)
            progress = CalibrationProgress(bar)
            if cluster is not None and (isinstance(backbone, str) or backbone is None):
                with _hands(opened, backbone, *cluster, device=device, dtype=dtype) as hands:
                    made = calibrate_with(hands, opened, found, request, watcher=progress)
            else:
                if isinstance(backbone, str) or backbone is None:
                    backbone = backbone_for(opened, backbone, device=device, dtype=dtype)
                made = calibrate_store(opened, backbone, found, request, watcher=progress)
    except KeyboardInterrupt:
        typer.echo("\ninterrupted; targets taken so far are kept: run it again to go on", err=True)
        raise typer.Exit(130) from None
    _report(made, store, request.name, as_json=as_json)


@contextmanager
def _hands(
    store: "PageStore",
    backbone: str | None,
    address: str,
    workers: int | None,
    *,
    device: str | None,
    dtype: str | None,
) -> "Iterator[RayExecutor]":
    """The workers of a cluster, with the model the store was made with."""
    from ridgerank.scaleout.ray_calibration import RayExecutor
    from ridgerank.scaleout.ray_cluster import ModelPlan, connect_ray, plan_workers
    from ridgerank.store.model_lineage import reading_of

    model = ModelPlan(backbone or store.lineage.backbone, device, dtype, **reading_of(store.lineage))
    with connect_ray(address) as cluster:
        cluster_workers = plan_workers(cluster, workers, device)
        typer.echo(f"Ray at {address}: {cluster_workers.count} workers", err=True)
        yield RayExecutor(store.uri, model, cluster_workers)


def _source(store: "PageStore", name: str | None) -> str:
    """What a retriever can be loaded by later: its name, or that of the one whose vectors are stored."""
    if name is not None:
        return name
    return "bm25" if store.vectors is None else store.vectors.origin.source


def _report(made: "Calibration", store: str, name: str, *, as_json: bool) -> None:
    """Print what was found, warnings last and loud."""
    from ridgerank.store.sidecar import calibrations_place

    if as_json:
        typer.echo(json.dumps({"name": name, **made.facts()}, ensure_ascii=False))
    else:
        _print(made)
    for warning in made.diagnostics.warnings:
        typer.secho(f"warning: {warning}", err=True, fg="yellow", bold=True)
    typer.echo(f"{calibrations_place(store)}/{name}.json: the whole report", err=True)


def _print(made: "Calibration") -> None:
    from rich.console import Console
    from rich.table import Table

    facts, weight = made.diagnostics, made.weight
    low, high = weight.weight_interval
    table = Table(show_header=False)
    table.add_row("retriever", made.retriever)
    table.add_row("queries", f"{facts.queries}, {facts.queries_from}; {facts.lists} lists fitted")
    table.add_row("target, state", f"{made.target}, {made.state}")
    table.add_row("penalty λ", f"{made.readout.penalty:g}{' (at the edge)' if facts.penalty_at_edge else ''}")
    r_low, r_high = facts.agreement_interval
    table.add_row("agreement r", f"{facts.agreement:.3f} ({r_low:.3f} to {r_high:.3f}), held-out lists")
    table.add_row("c_b, c_s, ρ", f"{_shown(weight.c_b)}, {_shown(weight.c_s)}, {_shown(weight.rho)}")
    table.add_row("least c_s (proposition 2)", _shown(facts.relevance_floor))
    table.add_row("weight", f"{weight.weight:.3f} ({low:.2f} to {high:.2f}), {weight.method}")
    table.add_row("interior", "yes" if weight.interior else "no")
    for title, estimate in (("label-free", facts.label_free), ("with judgements", facts.closed_form)):
        if facts.closed_form is not None and estimate is not None:
            table.add_row(f"weight {title}", f"{estimate.weight:.3f}")
    table.add_row("expected gain", _shown(facts.expected_gain, sign="+"))
    Console().print(table)
    if len(facts.readings) > 1:
        _compare(made)


def _compare(made: "Calibration") -> None:
    """Every target and state that was looked at, and why one was taken."""
    from rich.console import Console
    from rich.table import Table

    table = Table()
    table.add_column("target, state", no_wrap=True)
    for title in ("spread", "ρ_bt", "ρ_bs", "held-out r", "c_s", "supported"):
        table.add_column(title)
    for reading in made.diagnostics.readings:
        taken = (reading.target, reading.state) == (made.target, made.state)
        shown = (reading.spread, reading.retriever_target, reading.retriever_readout)
        figures = (*shown, reading.agreement, reading.relevance)
        verdict = f"{'yes' if reading.supported else 'no'}{', taken' if taken else ''}"
        table.add_row(reading.name, *(_shown(value) for value in figures), verdict)
    Console().print(table)
    Console().print(made.diagnostics.reason, markup=False, highlight=False, soft_wrap=True)


def _shown(value: float, *, sign: str = "") -> str:
    return "unknown" if value != value else f"{value:{sign}.3f}"


def read_given(queries: Path | None) -> "tuple[list[Query], str]":
    """Queries of a file and where they came from; none where none are given."""
    from ridgerank.runs.queries import read_queries

    return ([], "") if queries is None else (read_queries(queries), f"from {queries.name}")


def request_for(
    queries: "list[Query]",
    source: str,
    qrels: Path | None,
    name: str,
    candidates: int,
    count: int,
    make: str,
    documents: list[Path] | None,
) -> "CalibrationRequest":
    """What was asked for, checked before anything heavy is imported."""
    from ridgerank.runs.trec import read_qrels

    judged = None if qrels is None else read_qrels(qrels)  # before the heavy imports
    if judged is not None and not queries:
        raise typer.BadParameter("judgements need the queries they judge: --queries", param_hint="--qrels")
    if make not in ("auto", "text", "model"):
        raise typer.BadParameter(f"{make!r}, wanted auto, text or model", param_hint="--make")
    from ridgerank.calibration.calibrate import CalibrationRequest

    making: Any = make
    return CalibrationRequest(
        queries=tuple(queries),
        queries_from=source,
        qrels=judged,
        name=name,
        candidates=candidates,
        count=count,
        making=making,
        documents=tuple(documents or ()),
    )


def _read_as(request: "CalibrationRequest", target: str, state: str) -> "CalibrationRequest":
    """The request with the target and the state asked for, by measure where that is `auto`."""
    from ridgerank.records import STATES, TARGETS

    if target not in ("auto", *TARGETS):
        raise typer.BadParameter(f"{target!r}, wanted auto, {' or '.join(TARGETS)}", param_hint="--target")
    if state not in ("auto", *STATES):
        raise typer.BadParameter(f"{state!r}, wanted auto, {' or '.join(STATES)}", param_hint="--state")
    taken: Any = None if target == "auto" else target
    place: Any = None if state == "auto" else state
    return replace(request, target=taken, state=place)


def _retriever(
    store: "PageStore",
    name: str | None,
    run: Path | None,
    queries: "Sequence[Query]",
    *,
    device: str | None,
    dtype: str | None,
) -> "Retriever":
    """The retriever named, or one that has done its work already."""
    from ridgerank.backbones.load import parse_dtype
    from ridgerank.retrievers.load import load_retriever

    if run is None:
        return load_retriever(name, store, device=device, dtype=parse_dtype(dtype))
    from ridgerank.retrievers.given_candidates import GivenCandidates
    from ridgerank.runs.trec import read_run

    return GivenCandidates.of_run(read_run(run), queries, resolve=store.find)
