"""Page images and thumbnails: rendered from the documents the store remembers, kept in bounded memory.

A request names a page by its id and nothing else; which file that is, only the store says.
"""

import io
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock

from PIL import Image

from ridgerank.documents.pages import PageRef, list_pages, render_pages
from ridgerank.records import Page
from ridgerank.serving.http_errors import ApiError, page_not_found
from ridgerank.serving.serve_settings import Limits
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import recall_sources

PIXELS = 2_000_000
"""Of a page image: enough to read small print by."""
RENDERING = 1
"""Raise this when pages are rendered in another way, so that browsers fetch them again."""
_MEDIA_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp"}


def image_etag(page_id: str) -> str:
    """The tag of a rendered page, known before it is rendered: the page id is a digest of the content."""
    return f'"{page_id}-{PIXELS}-{RENDERING}"'


def thumbnail_etag(page_id: str) -> str:
    """The tag of a thumbnail, known before it is read."""
    return f'"{page_id}-thumbnail-{RENDERING}"'


@dataclass(frozen=True, slots=True)
class EncodedImage:
    """An image as a file has it."""

    data: bytes
    media_type: str


class PageImages:
    """Renders pages one at a time and keeps the last ones in memory; safe for any number of threads."""

    def __init__(self, store: PageStore, limits: Limits) -> None:
        self._store = store
        self._limits = limits
        self._held: OrderedDict[str, EncodedImage] = OrderedDict()
        self._nbytes = 0
        self._coming: dict[str, Future[EncodedImage]] = {}
        self._lock = Lock()
        # PDFium is for one thread at a time.
        self._renderer = ThreadPoolExecutor(1, thread_name_prefix="ridgerank-render")

    def require_page(self, page_id: str) -> None:
        """Raise where the store has no such page. It asks the store: call it outside the event loop."""
        if page_id not in self._store:
            raise page_not_found(page_id)

    def render(self, page_id: str) -> Future[EncodedImage]:
        """Render a stored page, or take it from memory; requests for one page share its rendering."""
        with self._lock:
            if page_id in self._held:
                self._held.move_to_end(page_id)
                ready: Future[EncodedImage] = Future()
                ready.set_result(self._held[page_id])
                return ready
            if page_id in self._coming:
                return self._coming[page_id]
            if len(self._coming) >= self._limits.waiting_renders:
                raise ApiError(429, "overloaded", "too many pages wait to be rendered", retry_after=1)
            coming = self._coming[page_id] = self._renderer.submit(self._rendered, page_id)
        return coming

    def thumbnail(self, page_id: str) -> EncodedImage:
        """Read the small image in the store: call it outside the event loop."""
        [page] = self._store.pages([page_id])
        if not page.thumbnail:
            raise ApiError(404, "no_picture", "the page was stored without a thumbnail")
        with Image.open(io.BytesIO(page.thumbnail)) as image:
            media_type = _MEDIA_TYPES.get(image.format or "", "application/octet-stream")
        return EncodedImage(page.thumbnail, media_type)

    def close(self) -> None:
        """Stop rendering."""
        self._renderer.shutdown(cancel_futures=True)

    def _rendered(self, page_id: str) -> EncodedImage:
        try:
            picture = self._render(page_id)
            self._hold(page_id, picture)
            return picture
        finally:
            with self._lock:
                del self._coming[page_id]

    def _render(self, page_id: str) -> EncodedImage:
        [stored] = self._store.pages([page_id])
        paths = recall_sources(self._store.uri, [stored.source])
        refs = (ref for ref in list_pages(paths) if isinstance(ref, PageRef) and ref.page_id == page_id)
        for page in render_pages(refs, max_pixels=PIXELS):
            if isinstance(page, Page):
                encoded = io.BytesIO()
                page.image.save(encoded, "PNG", compress_level=1)
                return EncodedImage(encoded.getvalue(), "image/png")
        raise ApiError(
            404, "document_gone", f"the document of {stored.references[0]} is no longer where it was indexed"
        )

    def _hold(self, page_id: str, picture: EncodedImage) -> None:
        with self._lock:
            if len(picture.data) > self._limits.image_cache_bytes:
                return
            self._held[page_id] = picture
            self._nbytes += len(picture.data)
            while self._nbytes > self._limits.image_cache_bytes:
                _, gone = self._held.popitem(last=False)
                self._nbytes -= len(gone.data)
