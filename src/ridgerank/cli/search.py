"""`ridgerank search`: a query in, the best pages out; or a file of queries, a run out."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ridgerank.cli.image_files import page_images, save_explanations, save_pages
from ridgerank.cli.options import (
    FOUND,
    OUTPUT,
    AsJson,
    BackboneName,
    CalibratedRetriever,
    Device,
    Documents,
    Dtype,
    MinScore,
    ReadoutName,
    Store,
    Where,
    require_tag,
)
from ridgerank.cli.talk import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ridgerank.records import Query, RankedPage, Ranking
    from ridgerank.reranker.reranker import Reranker
    from ridgerank.store.page_filter import PageFilter


_UNCUT_WIDTH = 1000
"""Columns; a table takes those it needs."""


def search_command(
    store: Store,
    query: Annotated[str | None, typer.Argument(help="What to look for.", show_default=False)] = None,
    queries: Annotated[
        Path | None,
        typer.Option(
            help="Many queries instead: JSON lines (query_id, text) or plain lines. A TREC run is written.",
            show_default=False,
            rich_help_panel="Many queries",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="With --queries: write the run here (whole or not at all), not to stdout.",
            rich_help_panel="Many queries",
        ),
    ] = None,
    tag: Annotated[
        str,
        typer.Option(
            help="With --queries: name of the run, its last column.", rich_help_panel="Many queries"
        ),
    ] = "ridgerank",
    top: Annotated[int, typer.Option(min=1, help="Pages to print.", rich_help_panel=OUTPUT)] = 5,
    candidates: Annotated[
        int, typer.Option(min=1, help="Pages the retriever finds, to be reranked.", rich_help_panel=FOUND)
    ] = 20,
    document: Documents = None,
    where: Where = None,
    min_score: MinScore = None,
    as_json: AsJson = False,
    images: Annotated[
        Path | None,
        typer.Option(help="Write the pages found to this folder, as images.", rich_help_panel=OUTPUT),
    ] = None,
    show: Annotated[
        bool,
        typer.Option("--open", help="Open the pages found in your image viewer.", rich_help_panel=OUTPUT),
    ] = False,
    explain: Annotated[
        Path | None,
        typer.Option(
            help="Write to this folder where the query looked on each page: a picture, and JSON.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    readout: ReadoutName = "default",
    retriever: CalibratedRetriever = None,
    backbone: BackboneName = None,
    device: Device = None,
    dtype: Dtype = None,
) -> None:
    """Retrieve, rerank, print: page, fused score, the part of each score in it, rank before and after.

    Each page has a relevance score from 0 to 1. With --min-score, pages below are left out, all if need be.

    With --queries, all reranked candidates of every query become a run for `ridgerank evaluate` or `fuse`.

    Example: `ridgerank search --store pages "operating margin in 2019"`

    Example: `ridgerank search --store pages --queries queries.jsonl --output run.trec`
    """
    from ridgerank.queries import read_queries, validate_query

    # Before the heavy imports, so that a mistake is reported at once.
    pictures_or_json = as_json or images is not None or show or explain is not None
    _require_query_or_file(query, queries, output, for_one_query=pictures_or_json)
    require_tag(tag)
    batch = None if queries is None else read_queries(queries)
    text = "" if query is None else validate_query(query)
    from ridgerank.reranker.options import RerankerOptions
    from ridgerank.store.page_filter import PageFilter

    within = PageFilter.parse(document or [], where or [])
    options = RerankerOptions(
        readout=readout,
        retriever=retriever,
        backbone=backbone,
        device=device,
        dtype=dtype,
    )
    with options.open(store) as reranker:
        if batch is not None:
            _write_run(reranker, batch, candidates, output, tag, min_score=min_score, within=within)
            return
        ranking = reranker.search(text, k=candidates, top_k=top, min_score=min_score, within=within)
        if as_json:
            pages = [{**asdict(page), "reason": page.reason} for page in ranking.pages]
            typer.echo(json.dumps({**asdict(ranking), "pages": pages}, ensure_ascii=False))
        else:
            _print(ranking)
        if images is not None or show or explain is not None:
            pictures = page_images(reranker.store, ranking)
            if images is not None or show:
                save_pages(ranking, pictures, images, show=show)
            if explain is not None:
                save_explanations(reranker, ranking, pictures, explain)
    if ranking.note:
        say(f"note: {ranking.note}")
    times = ranking.latency
    say(
        f"weight {ranking.weight:.3f}; retrieval {times.retrieval_ms:.0f} ms, "
        f"reading {times.reading_ms:.0f} ms, model {times.compute_ms:.0f} ms, "
        f"ranking {times.ranking_ms:.1f} ms"
    )


def _require_query_or_file(
    query: str | None, queries: Path | None, output: Path | None, *, for_one_query: bool
) -> None:
    if (query is None) == (queries is None):
        raise typer.BadParameter("give a query, or a file of them with --queries")
    if queries is None and output is not None:
        raise typer.BadParameter("a run is written for --queries only", param_hint="--output")
    if queries is not None and for_one_query:
        raise typer.BadParameter("--json, --images, --open and --explain are for one query, not --queries")


def _print(ranking: "Ranking") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table()
    table.add_column("page", no_wrap=True)
    for title in ("fused", "retriever", "readout", "rank", "score"):
        table.add_column(title, justify="right", no_wrap=True)
    for page in ranking.pages:
        parts = (page.fused_score, page.retriever_part, page.readout_part)
        moved = f"{page.retriever_rank} → {page.rank}"
        name = shorten_middle(page.reference, console.width - 58) if console.is_terminal else page.reference
        table.add_row(name, *(f"{part:+.3f}" for part in parts), moved, f"{page.relevance_score:.2f}")
    if not console.is_terminal:  # for a file or another program nothing is cut
        console = Console(width=_UNCUT_WIDTH)
    console.print(table)


def shorten_middle(name: str, width: int) -> str:
    """A name cut in the middle to this width, at least 16: the end, which names the page, stays."""
    width = max(16, width)
    if len(name) <= width:
        return name
    end = (width - 1) * 2 // 3
    return f"{name[: width - 1 - end]}…{name[-end:]}"


def _write_run(
    reranker: "Reranker",
    queries: "Sequence[Query]",
    candidates: int,
    output: Path | None,
    tag: str,
    *,
    min_score: float | None,
    within: "PageFilter",
) -> None:
    """Search for every query and write all reranked candidates as one run, pages by their reference."""
    from ridgerank.atomic import replace_text_file
    from ridgerank.cli.progress_bars import Bar
    from ridgerank.trec import Run, write_run

    scored: dict[str, dict[str, float]] = {}
    notes: dict[str, int] = {}
    with Bar() as bar:
        bar.start("searching", len(queries))
        for query in queries:
            ranking = reranker.search(
                query.text, k=candidates, top_k=candidates, min_score=min_score, within=within
            )
            if ranking.pages or min_score is None:
                scored[query.query_id] = {_run_name(page): page.fused_score for page in ranking.pages}
                notes[ranking.note] = notes.get(ranking.note, 0) + 1
            bar.advance()
    run = Run.of_dict(scored)
    if output is None:
        write_run(run, sys.stdout, tag=tag)
    else:
        with replace_text_file(output) as file:
            write_run(run, file, tag=tag)
    for note, count in notes.items():
        if note:
            say(f"note, for {count} of {len(queries)} queries: {note}")
    if len(scored) < len(queries):
        say(f"no page reaches --min-score for {len(queries) - len(scored)} of {len(queries)} queries")
    say(f"{len(queries)} queries ranked at weight {reranker.calibration.weight.weight:.3f}")


def _run_name(page: "RankedPage") -> str:
    """The page's reference, or its id where the reference has blanks, which a run's columns cannot hold."""
    return page.page_id if len(page.reference.split()) != 1 else page.reference
