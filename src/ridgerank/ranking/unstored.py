"""Pages that are in no store: encoded on the fly, compressed as a store would, held in memory for a while."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TypeAlias

from PIL.Image import Image

from ridgerank.backbones.base import Backbone
from ridgerank.documents.pages import PageRef, list_pages, page_from_image, render_pages
from ridgerank.errors import StoreError
from ridgerank.lineage import Lineage
from ridgerank.records import Page
from ridgerank.store.compress import compress
from ridgerank.store.layout import PackedPrefix, block_of
from ridgerank.store.pruning import Keep

Origin: TypeAlias = Mapping[str, Image | Page] | Iterable[str | Path]
"""Where missing pages come from: images or pages by the name of the page, or files and folders to look in."""


@dataclass(frozen=True, slots=True, eq=False)
class UnstoredPage:
    """A page that is in no store, ready for a query."""

    page_id: str
    reference: str
    prefix: PackedPrefix


class UnstoredPages:
    """Encodes pages for a store without writing to it; safe for any number of threads."""

    def __init__(self, backbone: Backbone, lineage: Lineage, *, capacity_bytes: int) -> None:
        self._backbone = backbone
        self._lineage = lineage
        self._capacity = capacity_bytes
        self._held: OrderedDict[str, UnstoredPage] = OrderedDict()
        self._nbytes = 0
        self._listed: dict[tuple[str, ...], dict[str, PageRef]] = {}
        self._lock = Lock()

    def find(self, names: Sequence[str], origin: Origin) -> dict[str, UnstoredPage]:
        """Name → page, encoded where it is not held yet; names the origin does not have are left out."""
        if not isinstance(origin, Mapping):
            return self._from_files(names, tuple(str(path) for path in origin))
        return {name: self._encoded(self._page(origin[name], name)) for name in names if name in origin}

    def _page(self, given: Image | Page, name: str) -> Page:
        if isinstance(given, Page):
            return given
        return page_from_image(given, name, max_pixels=self._backbone.max_pixels)

    def _from_files(self, names: Sequence[str], paths: tuple[str, ...]) -> dict[str, UnstoredPage]:
        with self._lock:
            if paths not in self._listed:
                refs = [ref for ref in list_pages(paths) if isinstance(ref, PageRef)]
                by_name = {ref.reference: ref for ref in refs}
                self._listed[paths] = by_name | {ref.page_id: ref for ref in refs}
            listed = self._listed[paths]
            found = {name: listed[name] for name in names if name in listed}
            guests = {
                name: self._held[ref.page_id] for name, ref in found.items() if ref.page_id in self._held
            }
        missing = {name: ref for name, ref in found.items() if name not in guests}
        read = render_pages(missing.values(), max_pixels=self._backbone.max_pixels)
        for name, page in zip(missing, read, strict=True):
            if not isinstance(page, Page):
                raise StoreError(f"a missing page cannot be read from its file: {page}")
            guests[name] = self._encoded(page)
        return guests

    def _encoded(self, page: Page) -> UnstoredPage:
        with self._lock:
            if page.page_id in self._held:
                self._held.move_to_end(page.page_id)
                return self._held[page.page_id]
        content = self._backbone.content(page)
        if isinstance(content, str) and not content.strip():
            raise StoreError(
                f"{page.reference} carries no text, and the model of this store reads text; index its "
                "document with --ocr"
            )
        [prefix] = self._backbone.encode(
            [content], exit_layer=self._lineage.exit_layer, join_layer=self._lineage.join_layer
        )
        guest = UnstoredPage(
            page.page_id, page.reference, compress(prefix, page.image, Keep.parse(self._lineage.keep))
        )
        with self._lock:
            self._hold(guest)
        return guest

    def _hold(self, guest: UnstoredPage) -> None:
        if guest.page_id in self._held or block_of(guest.prefix).nbytes > self._capacity:
            return
        self._held[guest.page_id] = guest
        self._nbytes += block_of(guest.prefix).nbytes
        while self._nbytes > self._capacity:
            _, gone = self._held.popitem(last=False)
            self._nbytes -= block_of(gone.prefix).nbytes
