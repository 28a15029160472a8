"""Image files of the pages of a ranking: the pages themselves, and the attention of the query over them."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ridgerank.cli.talk import say

if TYPE_CHECKING:
    from PIL.Image import Image

    from ridgerank.records import RankedPage, Ranking
    from ridgerank.reranker.reranker import Reranker
    from ridgerank.store.page_store import PageStore

PIXELS = 2_000_000
"""Pixels per image: enough to read small print."""
_NAME_BYTES = 200
"""Of a reference in a file's name."""


def page_images(store: "PageStore", ranking: "Ranking") -> "dict[str, Image]":
    """Page id → image: rendered where the page's document still is, else the store's thumbnail."""
    import io

    from PIL import Image

    from ridgerank.records import Page
    from ridgerank.store.sidecar import locate_pages, render_locations

    stored = {page.page_id: page for page in store.pages([page.page_id for page in ranking.pages])}
    pages = render_locations(locate_pages(store, list(stored)), max_pixels=PIXELS)
    rendered = {page.page_id: page.image for page in pages if isinstance(page, Page)}
    thumbnails = {
        page_id: Image.open(io.BytesIO(page.thumbnail))
        for page_id, page in stored.items()
        if page_id not in rendered
    }
    return {**rendered, **thumbnails}


def save_pages(ranking: "Ranking", images: "Mapping[str, Image]", folder: Path | None, *, show: bool) -> None:
    """Write the pages of a ranking to a folder, or a temporary one; with `show`, open them in a viewer."""
    import tempfile

    folder = folder or Path(tempfile.mkdtemp(prefix="ridgerank-"))
    folder.mkdir(parents=True, exist_ok=True)
    for page in ranking.pages:
        path = folder / f"{_name(page)}.png"
        _save_png(images[page.page_id], path)
        if show:
            typer.launch(str(path))
    say(f"{folder}: {len(ranking.pages)} page images")


def save_explanations(
    reranker: "Reranker", ranking: "Ranking", images: "Mapping[str, Image]", folder: Path
) -> None:
    """Write the attention of the query over each page: as a heatmap and as JSON."""
    from ridgerank.atomic import replace_text_file
    from ridgerank.reranker.explain import draw_heatmap

    folder.mkdir(parents=True, exist_ok=True)
    for page in ranking.pages:
        explanation = reranker.explain(ranking.query, page.page_id)
        _save_png(draw_heatmap(images[page.page_id], explanation), folder / f"{_name(page)}.png")
        facts = {**asdict(explanation), "rank": page.rank, "reason": page.reason}
        with replace_text_file(folder / f"{_name(page)}.json") as file:
            file.write(json.dumps(facts, ensure_ascii=False) + "\n")
    say(f"{folder}: {len(ranking.pages)} pages explained, each a picture and its numbers")


def _save_png(image: "Image", path: Path) -> None:
    from ridgerank.atomic import replace_file

    with replace_file(path) as scratch:
        image.save(scratch, format="PNG")


def _name(page: "RankedPage") -> str:
    """Rank and reference; of a reference that is too long for a file's name, its end."""
    reference = page.reference.replace("/", "-").replace("#", "-")
    return f"{page.rank:02}-{reference.encode()[-_NAME_BYTES:].decode(errors='ignore')}"
