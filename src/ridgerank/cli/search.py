"""`ridgerank search`: a query in, the best pages out."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ridgerank.cli.image_files import page_images, save_explanations, save_pages
from ridgerank.cli.options import (
    AsJson,
    BackboneName,
    CacheDir,
    CacheSize,
    CalibratedRetriever,
    Device,
    Dtype,
    ReadoutName,
    Store,
    parse_size,
)

if TYPE_CHECKING:
    from ridgerank.records import Ranking


def search_command(
    query: Annotated[str, typer.Argument(help="What to look for.", show_default=False)],
    store: Store,
    top: Annotated[int, typer.Option(min=1, help="Pages to print.")] = 5,
    candidates: Annotated[int, typer.Option(min=1, help="Pages the retriever finds, to be reranked.")] = 20,
    as_json: AsJson = False,
    images: Annotated[
        Path | None, typer.Option(help="Write the pages found to this folder, as images.")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the pages found in your image viewer.")] = False,
    explain: Annotated[
        Path | None,
        typer.Option(help="Write to this folder where the query looked on each page: a picture, and JSON."),
    ] = None,
    readout: ReadoutName = "default",
    retriever: CalibratedRetriever = None,
    cache_dir: CacheDir = None,
    cache_size: CacheSize = "20GB",
    backbone: BackboneName = None,
    device: Device = None,
    dtype: Dtype = None,
) -> None:
    """Retrieve, rerank, print: page, fused score, the part of each score in it, rank before and after.

    Example: `ridgerank search --store pages "operating margin in 2019"`
    """
    from ridgerank.runs.queries import validate_query

    validate_query(query)  # before the heavy imports, so that a mistake is reported at once
    cache_disk_bytes = parse_size(cache_size)
    from ridgerank.ranking.reranker_options import RerankerOptions

    options = RerankerOptions(
        readout=readout,
        retriever=retriever,
        backbone=backbone,
        device=device,
        dtype=dtype,
        cache_dir=cache_dir,
        cache_disk_bytes=cache_disk_bytes,
    )
    with options.open(store) as reranker:
        ranking = reranker.search(query, k=candidates, top_k=top)
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
        typer.echo(f"note: {ranking.note}", err=True)
    times = ranking.latency
    typer.echo(
        f"weight {ranking.weight:.3f}; retrieval {times.retrieval_ms:.0f} ms, "
        f"reading {times.reading_ms:.0f} ms, model {times.compute_ms:.0f} ms, "
        f"ranking {times.ranking_ms:.1f} ms",
        err=True,
    )


def _print(ranking: "Ranking") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    table.add_column("page", overflow="fold")
    for title in ("fused", "retriever", "readout", "rank"):
        table.add_column(title, justify="right", no_wrap=True)
    for page in ranking.pages:
        parts = (page.fused_score, page.retriever_part, page.readout_part)
        moved = f"{page.retriever_rank} → {page.rank}"
        table.add_row(page.reference, *(f"{part:+.3f}" for part in parts), moved)
    Console().print(table)
