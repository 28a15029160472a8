"""`ridgerank calibrate`: fit the readout and the weight."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ridgerank.cli import _options
from ridgerank.cli._console import Bar, echo, interruptible, warn
from ridgerank.errors import CalibrationError, QueryError
from ridgerank.records import Query, ScoredPages
from ridgerank.trec import Qrels, read_qrels, read_queries, read_run, read_text

if TYPE_CHECKING:
    from ridgerank.calibration.artifact import Calibration
    from ridgerank.calibration.calibrate import Progress
    from ridgerank.retrievers.base import Retriever
    from ridgerank.store.page_store import PageStore


queries_option = partial(typer.Option, rich_help_panel="Queries and judgements")
fit_option = partial(typer.Option, rich_help_panel="What is fitted")


def calibrate_command(
    store: _options.Store,
    queries: Annotated[
        Path | None,
        queries_option(help="JSON lines (query_id, text) or plain lines. [default: made from the pages]"),
    ] = None,
    qrels: Annotated[
        Path | None, queries_option(help="Judgements of these queries, TREC: the weight is read on them.")
    ] = None,
    run: Annotated[
        Path | None,
        _options.retriever(help="Your retriever's candidates, TREC; needs --queries. --retriever names it."),
    ] = None,
    retriever: Annotated[
        str | None,
        _options.retriever(
            help="bm25, dense:NAME, a late interaction model, or several joined by +, such as stored+bm25. "
            "[default: the store's, else bm25]"
        ),
    ] = None,
    name: Annotated[
        str, _options.output(help="Name: several calibrations may lie beside a store.")
    ] = "default",
    candidates: _options.CandidateCount = 20,
    count: Annotated[int, queries_option(min=16, help="Questions to make from the pages.")] = 48,
    documents: Annotated[
        list[Path] | None, _options.document(help="Where they are now. [default: where they were]")
    ] = None,
    target: Annotated[
        Literal["auto", "margin", "likelihood"],
        fit_option(help="What to learn: margin (yes − no), likelihood (of the query), or auto."),
    ] = "auto",
    state: Annotated[
        Literal["auto", "last", "mean"],
        fit_option(help="Where to read: last position, mean over the query's positions, or auto."),
    ] = "auto",
    teacher: Annotated[
        str | None, fit_option(help="Learn the scores of this TREC run. [default: the model's own]")
    ] = None,
    readout: Annotated[
        str | None,
        fit_option(help="Only weigh this readout: a file, owner/name on the hub, or a shipped one."),
    ] = None,
    texts: Annotated[
        str | None,
        fit_option(
            help="Fit to texts: those of pages, cut at so many characters (800), or of a file (JSON lines)."
        ),
    ] = None,
    save_to: Annotated[
        Path | None, _options.output("--save", help="Write the readout to this file, for other stores.")
    ] = None,
    export: Annotated[
        Path | None, _options.output(help="Write lists, their states and targets to this safetensors file.")
    ] = None,
    backbone: _options.BackboneName = None,
    device: _options.Device = None,
    dtype: _options.Dtype = None,
    weight_only: Annotated[
        bool,
        typer.Option(
            "--weight-only", help="Only estimate the weight again, from judgements in the browser or --qrels."
        ),
    ] = False,
    as_json: _options.AsJson = False,
) -> None:
    """Fit a readout and a fusion weight to a store and its retriever; no labels needed.

    An interrupted calibration continues where it stopped. The report is saved beside the store, as
    calibrations/NAME.json and NAME.png.

    Example: `ridgerank calibrate --store pages --queries queries.jsonl`
    """
    # All that can be refused is refused before the heavy imports.
    calibration_queries = None if queries is None else read_queries(queries)
    judgements = None if qrels is None else read_qrels(qrels)
    if queries is None and (qrels is not None or run is not None):
        raise typer.BadParameter("needed by --qrels and --run", param_hint="--queries")
    if teacher and target != "auto":
        raise typer.BadParameter("a teacher brings its own: leave it out", param_hint="--target")
    if readout and (teacher or target != "auto" or state != "auto"):
        raise typer.BadParameter("not with --teacher, --target or --state", param_hint="--readout")
    from ridgerank.store.page_store import PageStore

    PageStore.open(store).close()  # a wrong path is reported before models are imported
    if weight_only and (run is not None or retriever is not None or readout):
        raise typer.BadParameter("it takes no other candidates or readout", param_hint="--weight-only")
    if weight_only:
        calibration = _estimate_weight_again(store, name, calibration_queries, judgements)
        print_report(calibration, store, name, as_json=as_json)
        return
    from ridgerank.backbones.model_settings import ModelSettings
    from ridgerank.calibration.calibrate import calibrate as calibrate_store
    from ridgerank.calibration.readout_file import ReadoutFile, find_readout
    from ridgerank.retrievers.base import GivenCandidates

    given_readout = ReadoutFile.load(find_readout(readout)) if readout else None
    with calibration_progress() as progress, PageStore.open(store) as pages:
        candidate_source: Retriever | str | None = retriever
        if run is not None:
            given = calibration_queries or []
            named = retriever or "run"  # the weight is for this retriever
            candidate_source = GivenCandidates(read_run(run), given, resolve=pages.find, name=named)
        model = ModelSettings.from_lineage(pages.lineage, name=backbone, device=device, dtype=dtype).load()
        calibration = calibrate_store(
            pages,
            backbone=model,
            retriever=candidate_source,
            queries=calibration_queries,
            queries_from="" if queries is None else f"from {queries.name}",
            qrels=judgements,
            name=name,
            readout=given_readout,
            texts=None if texts is None else _read_texts(texts, pages),
            export=export,
            candidates=candidates,
            query_count=count,
            documents=documents or [],
            target=None if target == "auto" else target,
            state=None if state == "auto" else state,
            teacher=teacher or "",
            device=device,
            dtype=dtype,
            progress=progress,
        )
        if save_to is not None:
            ReadoutFile.of(calibration, model).save(save_to)
    print_report(calibration, store, name, as_json=as_json)


def _read_texts(given: str, store: "PageStore") -> dict[str, str]:
    """Texts by name: those of the pages, cut at a number of characters, or the lines of a file."""
    texts: dict[str, str] = {}
    if given.isdecimal():
        for page, text in store.texts().items():
            starts = range(0, len(text), int(given))
            texts |= {
                f"{store.reference(page)}@{start}": text[start : start + int(given)] for start in starts
            }
        return texts
    lines = read_text(Path(given), "a file of texts", QueryError).split("\n")
    try:
        return {f"{given}#{n}": json.loads(line)["text"] for n, line in enumerate(lines, 1) if line.strip()}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise QueryError(f"{given}: {error!r}; expected lines of JSON, each with a `text`") from error


@contextmanager
def calibration_progress() -> "Iterator[Progress]":
    """A bar on stderr."""
    with interruptible("targets taken so far are kept: run it again to go on"), Bar() as bar:
        yield bar.show


def _estimate_weight_again(
    store: str, name: str, queries: list[Query] | None, qrels: Qrels | None
) -> "Calibration":
    """Estimate the weight of a calibration again and save it, with a line that says what changed.

    Judgements are those given in the browser and those of `qrels`; if both judge a page, the file counts.
    """
    from ridgerank.calibration.artifact import Calibration
    from ridgerank.calibration.weight import reweigh
    from ridgerank.serving.judging import kept_judgements
    from ridgerank.store.page_store import PageStore
    from ridgerank.store.sidecar import open_calibrations

    start = time.perf_counter()
    with open_calibrations(store, edit=True) as folder, PageStore.open(store) as pages:
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


def _read_grades(store: "PageStore", queries: list[Query], qrels: Qrels) -> dict[str, dict[str, int]]:
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
    count_before, count_after = (
        each.weight.queries_used if each.weight.method == "closed-form" else 0 for each in (before, after)
    )
    if count_after >= count_before:
        return
    change = f"the weight of {name} rests on {count_before} judged queries, {count_after} are known now"
    if before.lists is not None and before.lists.relevance is not None:
        typer.echo(f"{change}; give the others with --queries and --qrels to keep them", err=True)
        return
    raise CalibrationError(f"{change}; nothing was changed. Give them with --queries and --qrels")


def _search_unknown(store: str, name: str, texts: list[str], candidates: int) -> dict[str, ScoredPages]:
    """Candidates and scores of queries that are not known yet: the model has to be loaded for these."""
    if not texts:
        return {}
    from ridgerank.reranker.options import RerankerOptions

    with RerankerOptions(readout=name).open(store) as reranker:
        rankings = [reranker.search(text, k=candidates, top_k=candidates) for text in texts]
    return {ranking.query: ScoredPages.of_ranking(ranking.pages) for ranking in rankings}


def print_report(calibration: "Calibration", store: str, name: str, *, as_json: bool) -> None:
    """Print a calibration: first what it says in a sentence."""
    if as_json:
        typer.echo(json.dumps({"name": name, **calibration.facts()}, ensure_ascii=False))
    else:
        typer.echo(calibration.summary())
        _print_tables(calibration)
    if calibration.weight.cause:
        warn(calibration.weight.note)
    echo(f"{store.rstrip('/')}/calibrations/{name}.json: the whole report")


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
    table.add_row("weight", f"{weight.weight:.3f} ({low:.2f} to {high:.2f}), {weight.method}")
    table.add_row("chance of a gain", _format(weight.chance_of_gain))
    for option in facts.options if len(facts.options) > 1 else ():
        selected = (option.target, option.state) == (calibration.target, calibration.state)
        verdict = f"taken: {facts.reason}" if selected else option.note
        measured = f"r {_format(option.agreement)}, c_s {_format(option.relevance)}"
        table.add_row(option.name, ", ".join(filter(None, (measured, verdict))))
    Console().print(table)


def _format(value: float) -> str:
    return "unknown" if value != value else f"{value:.3f}"
