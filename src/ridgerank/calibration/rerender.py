"""Stored pages seen again: rendered from the documents they came from, found by content, not by name.

Their text is the one stored: OCR may have read it, and is not asked again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ridgerank.documents.pages import PageRef, list_pages, render_pages
from ridgerank.errors import CalibrationError
from ridgerank.records import Page
from ridgerank.store.lance_dataset import named
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import recall_sources

BATCH_PAGES = 4
"""Pages that go through the model at once."""


def see_pages(
    store: PageStore, page_ids: Sequence[str], *, max_pixels: int, documents: Sequence[Path] = ()
) -> Iterator[list[Page]]:
    """The pages wanted, a few at a time; those whose document is gone or changed are named in the error.

    `documents` are files and folders to look in; without them, the files the store was indexed from.
    """
    found = find_again(store, page_ids, documents=documents)
    for start in range(0, len(found), BATCH_PAGES):
        yield render_again(found[start : start + BATCH_PAGES], max_pixels=max_pixels)


@dataclass(frozen=True, slots=True)
class FoundAgain:
    """A stored page that can be rendered again."""

    ref: PageRef
    text: str
    """As it is stored."""


def find_again(
    store: PageStore, page_ids: Sequence[str], *, documents: Sequence[Path] = ()
) -> list[FoundAgain]:
    """Where pages can be rendered from, in the order of the documents; those that cannot are an error."""
    stored = store.pages(page_ids) if page_ids else []
    texts = {page.page_id: page.text for page in stored}
    paths = list(documents) or recall_sources(store.uri, sorted({page.source for page in stored}))
    wanted = set(page_ids)
    refs = {
        ref.page_id: ref for ref in list_pages(paths) if isinstance(ref, PageRef) and ref.page_id in wanted
    }
    missing = store.references([page_id for page_id in page_ids if page_id not in refs])
    if missing:
        raise CalibrationError(
            f"{len(missing)} pages have to be looked at again and are not where they were indexed from, or "
            f"have changed: {named(missing)}; say where they are (--documents)"
        )
    return [FoundAgain(ref, texts[ref.page_id]) for ref in refs.values()]


def render_again(found: Sequence[FoundAgain], *, max_pixels: int) -> list[Page]:
    """Pages as they were indexed; one that cannot be read any more is an error."""
    read = list(render_pages((one.ref for one in found), max_pixels=max_pixels))
    unread = [str(page) for page in read if not isinstance(page, Page)]
    if unread:
        raise CalibrationError(f"pages that have to be looked at again cannot be read: {named(unread)}")
    texts = {one.ref.page_id: one.text for one in found}
    return [replace(page, text=texts[page.page_id]) for page in read if isinstance(page, Page)]
