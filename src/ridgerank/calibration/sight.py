"""Stored pages seen again: rendered from the documents they came from, found by content, not by name.

Their text is the one stored: OCR may have read it, and is not asked again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from ridgerank.documents.pages import PageRef, list_pages, render_pages
from ridgerank.errors import CalibrationError
from ridgerank.records import Page
from ridgerank.store.beside import recall_sources
from ridgerank.store.dataset import named
from ridgerank.store.read import PageStore

BATCH_PAGES = 4
"""Pages that go through the model at once."""


def see_pages(
    store: PageStore, page_ids: Sequence[str], *, max_pixels: int, documents: Sequence[Path] = ()
) -> Iterator[list[Page]]:
    """The pages wanted, a few at a time; those whose document is gone or changed are named in the error.

    `documents` are files and folders to look in; without them, the files the store was indexed from.
    """
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
    read = render_pages(refs.values(), max_pixels=max_pixels)
    while batch := list(islice(read, BATCH_PAGES)):
        pages = [page for page in batch if isinstance(page, Page)]
        if len(pages) < len(batch):
            unread = [str(page) for page in batch if not isinstance(page, Page)]
            raise CalibrationError(f"pages that have to be looked at again cannot be read: {named(unread)}")
        yield [replace(page, text=texts[page.page_id]) for page in pages]
