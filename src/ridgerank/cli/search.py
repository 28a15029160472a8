"""`ridgerank search`: a query in, the best pages out; or a file of queries, a run out."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ridgerank.atomic import replace_file, replace_text_file, say_what_cannot_be_written
from ridgerank.cli import _options
from ridgerank.cli._console import WIDTH, Bar, echo
from ridgerank.records import Page, Query, RankedPage, Ranking, to_json, validate_query
from ridgerank.trec import Run, read_queries

if TYPE_CHECKING:
    from PIL.Image import Image

    from ridgerank.reranker.reranker import Reranker
    from ridgerank.store.page_filter import PageFilter
    from ridgerank.store.page_store import PageStore


batch_option = partial(typer.Option, rich_help_panel="Many queries")
_PIXELS = 2_000_000
"""Pixels per saved image: enough to read small print."""
_NAME_BYTES = 200
"""Of a reference in a file's name."""


def search_command(
    store: _options.Store,
    query: Annotated[str | None, typer.Argument(help="The question or keywords.")] = None,
    queries: Annotated[
        Path | None,
        batch_option(
            help="Many queries instead: JSON lines (query_id, text) or plain lines. A TREC run is written."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        batch_option(help="With --queries: write the run here (whole or not at all), not to stdout."),
    ] = None,
    top: Annotated[int, _options.output(min=1, help="Pages to print.")] = 5,
    candidates: _options.CandidateCount = 20,
    document: _options.Documents = None,
    where: _options.Where = None,
    min_score: _options.MinScore = None,
    as_json: _options.AsJson = False,
    images: Annotated[
        Path | None, _options.output(help="Write the pages found to this folder, as images.")
    ] = None,
    explain: Annotated[
        Path | None,
        _options.output(
            help="Write to this folder where the query looked on each page: a picture, and JSON."
        ),
    ] = None,
    readout: _options.ReadoutName = "default",
    retriever: _options.CalibratedRetriever = None,
    backbone: _options.BackboneName = None,
    device: _options.Device = None,
    dtype: _options.Dtype = None,
) -> None:
    """Retrieve, rerank, print: page, fused score, the part of each score in it, rank before and after.

    Each page has a relevance score from 0 to 1. With --min-score, pages below it are left out.

    With --queries, all reranked candidates of every query become a run for `ridgerank evaluate` or `fuse`.

    Example: `ridgerank search --store pages "operating margin in 2019"`

    Example: `ridgerank search --store pages --queries queries.jsonl --output run.trec`
    """
    # Before the heavy imports, so that a mistake is reported at once.
    if (query is None) == (queries is None):
        raise typer.BadParameter("give a query, or a file of them with --queries")
    if queries is None and output is not None:
        raise typer.BadParameter("a run is written for --queries only", param_hint="--output")
    if queries is not None and (as_json or images is not None or explain is not None):
        raise typer.BadParameter("--json, --images and --explain are for one query, not --queries")
    batch = None if queries is None else read_queries(queries)
    text = "" if query is None else validate_query(query)
    for folder in filter(None, (images, explain)):
        with say_what_cannot_be_written(folder):
            folder.mkdir(parents=True, exist_ok=True)
    from ridgerank.reranker.options import RerankerOptions
    from ridgerank.store.page_filter import PageFilter

    within = PageFilter.parse(document or [], where or [])
    options = RerankerOptions(
        readout=readout, retriever=retriever, backbone=backbone, device=device, dtype=dtype
    )
    with options.open(store) as reranker:
        if batch is not None:
            _write_run(reranker, batch, candidates, output, min_score=min_score, within=within)
            return
        ranking = reranker.search(text, k=candidates, top_k=top, min_score=min_score, within=within)
        if as_json:
            pages = [{**to_json(page), "reason": page.reason} for page in ranking.pages]
            typer.echo(json.dumps({**to_json(ranking), "pages": pages}, ensure_ascii=False))
        else:
            _print(ranking)
        pictures = _page_images(reranker.store, ranking) if images or explain else {}
        if images is not None:
            save_pages(ranking, pictures, images)
        if explain is not None:
            save_explanations(reranker, ranking, pictures, explain)
    for reason in ranking.reasons:
        echo(f"note: {reason}")
    times = ranking.latency
    echo(
        f"weight {ranking.weight:.3f}; retrieval {times.retrieval_ms:.0f} ms, "
        f"reading {times.reading_ms:.0f} ms, model {times.compute_ms:.0f} ms, "
        f"ranking {times.ranking_ms:.1f} ms"
    )


def _print(ranking: Ranking) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table()
    table.add_column("page", overflow="fold")
    for title in ("fused", "retriever", "readout", "rank", "score"):
        table.add_column(title, justify="right", no_wrap=True)
    for page in ranking.pages:
        parts = (page.fused_score, page.retriever_part, page.readout_part)
        moved = f"{page.retriever_rank} → {page.rank}"
        name, score = escape(page.reference), f"{page.relevance_score:.2f}"
        table.add_row(name, *(f"{part:+.3f}" for part in parts), moved, score)
    # For a file or another program no line is broken.
    Console(width=None if Console().is_terminal else WIDTH).print(table)


def _write_run(
    reranker: "Reranker",
    queries: Sequence[Query],
    candidates: int,
    output: Path | None,
    *,
    min_score: float | None,
    within: "PageFilter",
) -> None:
    """Search for every query and write all reranked candidates as one run, pages by their reference."""
    scored: dict[str, dict[str, float]] = {}
    notes = Counter[str]()
    with Bar() as bar:
        bar.start("searching", len(queries))
        for query in queries:
            ranking = reranker.search(
                query.text, k=candidates, top_k=candidates, min_score=min_score, within=within
            )
            if ranking.pages or min_score is None:
                scored[query.query_id] = {_run_name(page): page.fused_score for page in ranking.pages}
                notes.update(ranking.reasons)
            bar.advance()
    _options.write_run_to(output, Run.of_dict(scored))
    for note, count in notes.items():
        echo(f"note, for {count} of {len(queries)} queries: {note}")
    if len(scored) < len(queries):
        echo(f"no page reaches --min-score for {len(queries) - len(scored)} of {len(queries)} queries")
    echo(f"{len(queries)} queries ranked at weight {reranker.calibration.weight.weight:.3f}")


def _run_name(page: RankedPage) -> str:
    """The page's reference, or its id if the reference has blanks, which a run's columns cannot hold."""
    return page.page_id if len(page.reference.split()) != 1 else page.reference


def _page_images(store: "PageStore", ranking: Ranking) -> "dict[str, Image]":
    """Page id → image: rendered if the page's document is still there, else the store's thumbnail."""
    import io

    from PIL import Image

    from ridgerank.store.sidecar import locate_pages, render_locations

    stored = {page.page_id: page for page in store.pages([page.page_id for page in ranking.pages])}
    pages = render_locations(locate_pages(store, list(stored)), max_pixels=_PIXELS)
    rendered = {page.page_id: page.image for page in pages if isinstance(page, Page)}
    thumbnails = {
        page_id: Image.open(io.BytesIO(page.thumbnail))
        for page_id, page in stored.items()
        if page_id not in rendered
    }
    return {**rendered, **thumbnails}


def save_pages(ranking: Ranking, images: "Mapping[str, Image]", folder: Path) -> None:
    """Write the pages of a ranking to a folder."""
    for page in ranking.pages:
        _save_png(images[page.page_id], folder / f"{_file_name(page)}.png")
    echo(f"{folder}: {len(ranking.pages)} page images")


def save_explanations(
    reranker: "Reranker", ranking: Ranking, images: "Mapping[str, Image]", folder: Path
) -> None:
    """Write the attention of the query over each page: as a heatmap and as JSON."""
    from ridgerank.reranker.explain import draw_heatmap

    for page in ranking.pages:
        explanation = reranker.explain(ranking.query, page.page_id)
        _save_png(draw_heatmap(images[page.page_id], explanation), folder / f"{_file_name(page)}.png")
        facts = {**asdict(explanation), "rank": page.rank, "reason": page.reason}
        with replace_text_file(folder / f"{_file_name(page)}.json") as file:
            file.write(json.dumps(facts, ensure_ascii=False) + "\n")
    echo(f"{folder}: {len(ranking.pages)} pages explained, each a picture and its numbers")


def _save_png(image: "Image", path: Path) -> None:

    with replace_file(path) as scratch:
        image.save(scratch, format="PNG")


def _file_name(page: RankedPage) -> str:
    """Rank and reference; of a reference that is too long for a file's name, its end."""
    reference = page.reference.replace("/", "-").replace("#", "-")
    return f"{page.rank:02}-{reference.encode()[-_NAME_BYTES:].decode(errors='ignore')}"
