"""Pages that are in no store: encoded on the fly, compressed as a store would, held in memory for a while."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TypeAlias

from PIL.Image import Image

from ridgerank.backbones.base import Backbone
from ridgerank.documents.render import PageRef, list_pages, page_from_image, page_from_text, render_pages
from ridgerank.errors import DocumentError, StoreError
from ridgerank.lineage import Lineage
from ridgerank.records import Page
from ridgerank.store.codec import compress
from ridgerank.store.layout import PackedPrefix, SharedPositions, block_shape
from ridgerank.store.reading import ByteLRU

PageSource: TypeAlias = Mapping[str, Image | Page | str] | Iterable[str | Path]
"""Where missing pages come from: images, pages or texts by the name of the page, or files and folders."""


@dataclass(frozen=True, slots=True, eq=False)
class UnstoredPage:
    """A page that is in no store, ready for a query."""

    page_id: str
    reference: str
    prefix: PackedPrefix


class UnstoredPages:
    """Encodes pages for a store without writing to it; safe for any number of threads."""

    def __init__(
        self,
        backbone: Backbone,
        lineage: Lineage,
        *,
        capacity_bytes: int,
        shared: SharedPositions | None = None,
    ) -> None:
        """`shared` are the store's positions before the page, if it holds them once."""
        self._backbone = backbone
        self._lineage = lineage
        self._shared = shared
        self._encoded_pages: ByteLRU[str, UnstoredPage] = ByteLRU(
            capacity_bytes, count_bytes=lambda page: block_shape(page.prefix).nbytes
        )
        self._listed: dict[tuple[str, ...], dict[str, PageRef]] = {}
        self._lock = Lock()

    def find(self, names: Sequence[str], source: PageSource) -> dict[str, UnstoredPage]:
        """Name → page, encoded unless it is in memory; names the source does not have are left out."""
        if not isinstance(source, Mapping):
            return self._find_in_files(names, tuple(str(path) for path in source))
        return {name: self._encode(self._as_page(source[name], name)) for name in names if name in source}

    def _as_page(self, content: Image | Page | str, name: str) -> Page:
        if isinstance(content, Page):
            return content
        if not isinstance(content, str):
            return page_from_image(content, name, max_pixels=self._backbone.page_budget)
        if not self._backbone.reads_text:
            raise DocumentError(
                "a document is given as a text, and the model of this store reads page images; index the "
                "document, or use a model that reads text"
            )
        return page_from_text(content, name)

    def _find_in_files(self, names: Sequence[str], paths: tuple[str, ...]) -> dict[str, UnstoredPage]:
        with self._lock:
            if paths not in self._listed:
                refs = [ref for ref in list_pages(paths) if isinstance(ref, PageRef)]
                by_name = {ref.reference: ref for ref in refs}
                self._listed[paths] = by_name | {ref.page_id: ref for ref in refs}
            listed = self._listed[paths]
            refs_by_name = {name: listed[name] for name in names if name in listed}
        held = {name: self._encoded_pages.get(ref.page_id) for name, ref in refs_by_name.items()}
        pages = {name: page for name, page in held.items() if page is not None}
        missing = {name: ref for name, ref in refs_by_name.items() if name not in pages}
        rendered = render_pages(missing.values(), max_pixels=self._backbone.page_budget)
        for name, page in zip(missing, rendered, strict=True):
            if not isinstance(page, Page):
                raise StoreError(f"a missing page cannot be read from its file: {page}")
            pages[name] = self._encode(page)
        return pages

    def _encode(self, page: Page) -> UnstoredPage:
        held = self._encoded_pages.get(page.page_id)
        if held is not None:
            return held
        content = self._backbone.content(page)
        if isinstance(content, str) and not content.strip():
            raise DocumentError(
                f"{page.reference} has no text, and the model of this store reads text; index its document "
                "with OCR"
            )
        storage = self._lineage.storage
        [prefix] = self._backbone.encode([content], exit_layer=storage.exit_layer)
        packed = compress(prefix, storage.keep, storage.numbers, self._shared)
        unstored = UnstoredPage(page.page_id, page.reference, packed)
        self._encoded_pages.put(unstored.page_id, unstored)
        return unstored
