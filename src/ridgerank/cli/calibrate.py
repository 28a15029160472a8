"""`ridgerank calibrate`: fit the readout and the weight."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ridgerank.cli._console import Bar, echo, warn
from ridgerank.cli._options import (
    AsJson,
    BackboneName,
    CandidateCount,
    Device,
    Dtype,
    Store,
    document_option,
    output_option,
    require_store,
    retriever_option,
)
from ridgerank.records import STATES, TARGETS

if TYPE_CHECKING:
    from ridgerank.calibration.artifact import Calibration
    from ridgerank.calibration.calibrate import Progress
    from ridgerank.records import Query, ScoredPages
    from ridgerank.retrievers.base import Retriever
    from ridgerank.store.page_store import PageStore
    from ridgerank.trec import Qrels


queries_option = partial(typer.Option, rich_help_panel="Queries and judgements")
fit_option = partial(typer.Option, rich_help_panel="What is fitted")


def calibrate_command(
    store: Store,
    queries: Annotated[
        Path | None,
        queries_option(
            help="Queries: JSON lines (query_id, text) or plain lines. [default: made from the pages]"
        ),
    ] = None,
    qrels: Annotated[
        Path | None,
        queries_option(
            help="Judgements of these queries, TREC: the weight is w* of 64 judged queries or more; "
            "fewer are averaged with the estimate without judgements."
        ),
    ] = None,
    weight_from: Annotated[
        str,
        queries_option(
            help="Take w* from another store that was calibrated with --qrels: STORE, or STORE#NAME.",
            show_default=False,
        ),
    ] = "",
    run: Annotated[
        Path | None,
        retriever_option(help="Your retriever's candidates for the queries, TREC; needs --queries."),
    ] = None,
    retriever: Annotated[
        str | None,
        retriever_option(
            help="bm25, dense:NAME, a late interaction model, or several joined by +, such as stored+bm25. "
            "[default: the store's, else bm25]"
        ),
    ] = None,
    name: Annotated[
        str, output_option(help="Name of the calibration: several may lie beside a store.")
    ] = "default",
    candidates: CandidateCount = 20,
    count: Annotated[int, queries_option(min=16, help="Queries to make where none are given.")] = 32,
    documents: Annotated[
        list[Path] | None,
        document_option(help="Where the documents are now. [default: where they were indexed from]"),
    ] = None,
    target: Annotated[
        str, fit_option(help="What to learn: margin (yes − no), likelihood (of the query), or auto.")
    ] = "auto",
    state: Annotated[
        str, fit_option(help="Where to read: last position, mean over the query's positions, or auto.")
    ] = "auto",
    teacher: Annotated[
        str,
        fit_option(
            help="Scores to learn: a TREC run made by any reranker, or qrels. [default: the model's own]",
            show_default=False,
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
    as_json: AsJson = False,
) -> None:
    """Fit a readout and a fusion weight to a store and its retriever; no labels needed.

    Pages whose full-depth targets are known are not read again. An interrupted calibration goes on where it
    stopped.
    The report lies beside the store, as calibrations/NAME.json and NAME.png.

    With `auto`, the paper's margin at the last position is kept if the model supports it and nothing else
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
        calibration = _estimate_weight_again(store, name, calibration_queries, judgements)
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
    shown, counted = "", 0

    def show(step: str, done: int, total: int) -> None:
        nonlocal shown, counted
        if step != shown:
            bar.start(step, total)
            shown, counted = step, 0
        bar.advance(done - counted)
        counted = done

    try:
        with Bar() as bar:
            yield show
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
            f"{value!r}, expected {', '.join(choices[:-1])} or {choices[-1]}", param_hint=option
        )
    return value


def _estimate_weight_again(
    store: str, name: str, queries: "list[Query] | None", qrels: "Qrels | None"
) -> "Calibration":
    """Estimate the weight of a calibration again and save it, with a line that says what changed.

    Judgements are those given in the browser and those of `qrels`; if both judge a page, the file counts.
    """
    from ridgerank.calibration.artifact import Calibration
    from ridgerank.calibration.weight import reweigh
    from ridgerank.serving.judging import kept_judgements
    from ridgerank.store.page_store import PageStore
    from ridgerank.store.sidecar import edit_calibrations

    start = time.perf_counter()
    with edit_calibrations(store) as folder, PageStore.open(store) as pages:
        before = Calibration.load(folder, name, lineage=pages.lineage)
        grades, known = kept_judgements(store, before)
        in_browser = len(grades)
        in_files = _read_grades(pages, queries or [], qrels or {})
        grades |= {text: grades.get(text, {}) | judged for text, judged in in_files.items()}
        own = set() if before.lists is None else {query.text for query in before.lists.queries}
        missing = [text for text in grades if text not in own and text not in known]
        known |= _search_unknown(store, name, missing, before.diagnostics.candidates)
        lists = None if before.lists is None else before.lists.with_grades(in_files)
        after = reweigh(replace(before, lists=lists), known, grades)
        _require_judgements(before, after, name)
        after.save(folder, name)
    kept = 0 if lists is None else len(lists.grades().keys() - grades.keys())
    typer.echo(
        f"{len(grades) + kept} judged queries, {in_browser} of them judged in the browser, {kept} in the "
        f"calibration; {len(missing)} had to be searched for; {time.perf_counter() - start:.1f} s",
        err=True,
    )
    typer.echo(
        f"weight {before.weight.weight:.3f} before ({before.weight.method}), {after.weight.weight:.3f} now "
        f"({after.weight.method})",
        err=True,
    )
    return after


def _read_grades(store: "PageStore", queries: "list[Query]", qrels: "Qrels") -> dict[str, dict[str, int]]:
    """The text of each judged query → grades by page id; pages that the store lacks are left out."""
    grades: dict[str, dict[str, int]] = {}
    unknown: set[str] = set()
    for query in queries:
        judged = qrels.get(query.query_id, {})
        ids = store.lookup_many(judged)
        unknown |= judged.keys() - ids.keys()
        if ids:
            grades[query.text] = {page_id: judged[page] for page, page_id in ids.items()}
    if unknown:
        typer.echo(
            f"{len(unknown)} judged pages are not in the store, such as {min(unknown)}: left out", err=True
        )
    return grades


def _require_judgements(before: "Calibration", after: "Calibration", name: str) -> None:
    """Refuse to trade judgements that are not at hand for fewer; say so if others went."""
    from ridgerank.errors import CalibrationError

    count_before, count_after = (
        each.weight.queries_used if each.weight.is_judged else 0 for each in (before, after)
    )
    if count_after >= count_before:
        return
    change = f"the weight of {name} rests on {count_before} judged queries, {count_after} are known now"
    if before.lists is not None and before.lists.relevance is not None:
        typer.echo(f"{change}; give the others with --queries and --qrels to keep them", err=True)
        return
    raise CalibrationError(f"{change}; nothing was changed. Give them with --queries and --qrels")


def _search_unknown(store: str, name: str, texts: list[str], candidates: int) -> "dict[str, ScoredPages]":
    """Candidates and scores of queries that are not known yet: the model has to be loaded for these."""
    if not texts:
        return {}
    from ridgerank.records import ScoredPages
    from ridgerank.reranker.options import RerankerOptions

    with RerankerOptions(readout=name).open(store) as reranker:
        rankings = [reranker.search(text, k=candidates, top_k=candidates) for text in texts]
    return {ranking.query: ScoredPages.of_ranking(ranking.pages) for ranking in rankings}


def print_report(calibration: "Calibration", store: str, name: str, *, as_json: bool) -> None:
    """Print a calibration, warnings last and loud."""
    from ridgerank.store.sidecar import locate_calibrations

    if as_json:
        typer.echo(json.dumps({"name": name, **calibration.facts()}, ensure_ascii=False))
    else:
        _print_tables(calibration)
    if calibration.weight.note and not calibration.diagnostics.warnings:
        echo(f"note: {calibration.weight.note}")
    for warning in calibration.diagnostics.warnings:
        warn(f"{warning}")
    echo(f"{locate_calibrations(store)}/{name}.json: the whole report")


def _print_tables(calibration: "Calibration") -> None:
    from rich.console import Console
    from rich.table import Table

    facts, weight = calibration.diagnostics, calibration.weight
    low, high = weight.weight_interval
    table = Table(show_header=False)
    table.add_row("retriever", calibration.retriever)
    table.add_row("queries", f"{facts.queries}, {facts.queries_from}; {facts.lists} lists fitted")
    table.add_row("target, state", f"{calibration.target}, {calibration.state}")
    table.add_row("reproduces", f"the scores of {facts.teacher}")
    table.add_row(
        "penalty λ", f"{calibration.readout.penalty:g}{' (at the edge)' if facts.penalty_at_edge else ''}"
    )
    r_low, r_high = facts.agreement_interval
    table.add_row("agreement r", f"{facts.agreement:.3f} ({r_low:.3f} to {r_high:.3f}), held-out lists")
    table.add_row("c_b, c_s, ρ", f"{_format(weight.c_b)}, {_format(weight.c_s)}, {_format(weight.rho)}")
    table.add_row("least c_s (proposition 2)", _format(facts.relevance_floor))
    table.add_row("weight", f"{weight.weight:.3f} ({low:.2f} to {high:.2f}), {weight.method}")
    if weight.method == "label-free":
        table.add_row("", "an estimate without judgements")
    table.add_row("interior", "yes" if weight.interior else "no")
    if facts.paper_label_free is not None:
        table.add_row("weight by §B.6", f"{facts.paper_label_free.weight:.3f}, this reading alone")
    for title, estimate in (("label-free", facts.label_free), ("with judgements", facts.closed_form)):
        if facts.closed_form is not None and estimate is not None:
            table.add_row(f"weight {title}", f"{estimate.weight:.3f}")
    table.add_row("expected gain", _format(facts.expected_gain, sign="+"))
    table.add_row("chance of a gain", _format(weight.chance_of_gain))
    Console().print(table)
    if len(facts.options) > 1:
        _print_options(calibration)


def _print_options(calibration: "Calibration") -> None:
    """Every target and state that was measured, and why one was selected."""
    from rich.console import Console
    from rich.table import Table

    table = Table()
    table.add_column("target, state", no_wrap=True)
    for title in ("spread", "ρ_bt", "ρ_bs", "held-out r", "c_s", "supported"):
        table.add_column(title)
    for option in calibration.diagnostics.options:
        selected = (option.target, option.state) == (calibration.target, calibration.state)
        correlations = (option.retriever_target, option.retriever_readout)
        figures = (option.spread, *correlations, option.agreement, option.relevance)
        verdict = f"{'yes' if option.supported else 'no'}{', taken' if selected else ''}"
        table.add_row(option.name, *(_format(value) for value in figures), verdict)
    Console().print(table)
    Console().print(calibration.diagnostics.reason, markup=False, highlight=False, soft_wrap=True)


def _format(value: float, *, sign: str = "") -> str:
    return "unknown" if value != value else f"{value:{sign}.3f}"
