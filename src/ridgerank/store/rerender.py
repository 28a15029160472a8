"""Stored pages rendered again from the documents they were indexed from.

A page is found by its id, a digest of its content, not by the name of its document. Its text is the stored
one: it may have come from OCR, which is not run again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ridgerank.documents.render import PageRef, list_pages, render_pages
from ridgerank.errors import CalibrationError
from ridgerank.page_sizing import PixelBudget
from ridgerank.records import Page, document_name
from ridgerank.store.lance_dataset import shorten
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import recall_sources

BATCH_PAGES = 4
"""Pages that go through the model at once."""


@dataclass(frozen=True, slots=True)
class PageLocation:
    """A stored page and the document it can be rendered from."""

    ref: PageRef
    text: str
    """As it is stored."""


def locate_pages(
    store: PageStore, page_ids: Sequence[str], *, documents: Sequence[Path] = ()
) -> list[PageLocation]:
    """Where pages can be rendered from, in the order of the documents; pages not found are left out.

    `documents` are files and folders to search; without them, the files the store was indexed from.
    """
    stored = {page.page_id: page for page in (store.pages(page_ids) if page_ids else [])}
    names = {page.source for page in stored.values()}
    names |= {document_name(reference) for page in stored.values() for reference in page.references}
    paths = list(documents) or recall_sources(store.uri, sorted(names))
    refs = {
        ref.page_id: ref for ref in list_pages(paths) if isinstance(ref, PageRef) and ref.page_id in stored
    }
    return [PageLocation(ref, stored[ref.page_id].text) for ref in refs.values()]


def render_locations(locations: Sequence[PageLocation], *, max_pixels: PixelBudget) -> Iterator[Page | str]:
    """Each page in turn with its stored text, or the reason why it cannot be read any more."""
    pages = render_pages((location.ref for location in locations), max_pixels=max_pixels)
    for location, page in zip(locations, pages, strict=True):
        yield replace(page, text=location.text) if isinstance(page, Page) else str(page)


def require_locations(
    store: PageStore, page_ids: Sequence[str], *, documents: Sequence[Path] = ()
) -> list[PageLocation]:
    """`locate_pages`, where pages whose document is gone or changed are named in an error."""
    locations = locate_pages(store, page_ids, documents=documents)
    located = {location.ref.page_id for location in locations}
    missing = store.references([page_id for page_id in page_ids if page_id not in located])
    if missing:
        raise CalibrationError(
            f"{len(missing)} pages have to be looked at again and are not where they were indexed from, or "
            f"have changed: {shorten(missing)}; say where they are (--documents)"
        )
    return locations


def require_rendered(locations: Sequence[PageLocation], *, max_pixels: PixelBudget) -> list[Page]:
    """Pages as they were indexed; pages that cannot be read any more are named in an error."""
    rendered = list(render_locations(locations, max_pixels=max_pixels))
    failures = [page for page in rendered if not isinstance(page, Page)]
    if failures:
        raise CalibrationError(f"pages that have to be looked at again cannot be read: {shorten(failures)}")
    return [page for page in rendered if isinstance(page, Page)]


def rerender_pages(
    store: PageStore, page_ids: Sequence[str], *, max_pixels: PixelBudget, documents: Sequence[Path] = ()
) -> Iterator[list[Page]]:
    """Pages of a store, `BATCH_PAGES` at a time; pages that cannot be rendered are named in an error."""
    locations = require_locations(store, page_ids, documents=documents)
    for start in range(0, len(locations), BATCH_PAGES):
        yield require_rendered(locations[start : start + BATCH_PAGES], max_pixels=max_pixels)
