"""Images that come in and images that go out, each handled in a process of its own within a time limit.

What callers send is decoded for a model; pages are rendered from the indexed documents and kept in bounded
memory. A parser can crash, and take long. A request names a page by its id only; the store knows which file
that is.
"""

import io
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import TypeAlias

from PIL import Image

from ridgerank.documents.render import decode_page, draw_page
from ridgerank.errors import DocumentError
from ridgerank.page_sizing import PixelBudget
from ridgerank.processes import IsolatedProcess, TookTooLong, WorkerDied
from ridgerank.records import Page
from ridgerank.serving.http_errors import ApiError
from ridgerank.serving.settings import Limits
from ridgerank.store.page_store import PageStore
from ridgerank.store.reading import ByteLRU
from ridgerank.store.sidecar import recall_sources

PIXELS = 2_000_000
"""Of a page image: enough to read small print."""
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


_PageKey: TypeAlias = tuple[str, str]
"""Store and page id."""


class PageImages:
    """Renders pages one at a time and keeps the last ones in memory; safe for any number of threads."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._images: ByteLRU[_PageKey, EncodedImage] = ByteLRU(
            limits.image_cache_bytes, count_bytes=lambda image: len(image.data)
        )
        self._renders: dict[_PageKey, Future[EncodedImage]] = {}
        self._lock = Lock()
        self._renderer = ThreadPoolExecutor(1, thread_name_prefix="ridgerank-render")
        self._process = IsolatedProcess()

    def render(self, store: PageStore, page_id: str) -> Future[EncodedImage]:
        """Render a stored page, or take it from memory; requests for one page share its rendering."""
        key = (store.uri, page_id)
        with self._lock:
            if (image := self._images.get(key)) is not None:
                ready: Future[EncodedImage] = Future()
                ready.set_result(image)
                return ready
            if key in self._renders:
                return self._renders[key]
            if len(self._renders) >= self._limits.waiting_renders:
                raise ApiError(429, "overloaded", "too many pages wait to be rendered", retry_after=1)
            rendering = self._renders[key] = self._renderer.submit(self._render_and_cache, store, page_id)
        return rendering

    def thumbnail(self, store: PageStore, page_id: str) -> EncodedImage:
        """Read the small image in the store: call it outside the event loop."""
        [page] = store.pages([page_id])
        if not page.thumbnail:
            raise ApiError(404, "no_picture", "the page was stored without a thumbnail")
        with Image.open(io.BytesIO(page.thumbnail)) as image:
            media_type = _MEDIA_TYPES.get(image.format or "", "application/octet-stream")
        return EncodedImage(page.thumbnail, media_type)

    def end_process(self) -> None:
        """End the process that reads documents, whatever it does."""
        self._process.close()

    def close(self) -> None:
        """Stop rendering, at once."""
        self.end_process()
        self._renderer.shutdown(cancel_futures=True)

    def _render_and_cache(self, store: PageStore, page_id: str) -> EncodedImage:
        key = (store.uri, page_id)
        try:
            image = self._render(store, page_id)
            self._images.put(key, image)
            return image
        finally:
            with self._lock:
                del self._renders[key]

    def _render(self, store: PageStore, page_id: str) -> EncodedImage:
        [stored] = store.pages([page_id])
        name = (*stored.references, page_id)[0]
        paths = recall_sources(store.uri, [stored.source])
        seconds = self._limits.render_seconds
        try:
            data = self._process.call(draw_page, seconds, paths, page_id, max_pixels=PIXELS)
        except TookTooLong as error:
            raise ApiError(
                422, "bad_document", f"{name} takes more than {seconds:g} s to draw; look at its document"
            ) from error
        except WorkerDied as error:
            raise ApiError(
                422, "bad_document", f"{name} ends the process that draws it; look at its document"
            ) from error
        if data is None:
            raise ApiError(404, "document_gone", f"the document of {name} is no longer where it was indexed")
        return EncodedImage(data, "image/png")


class ImageDecoder:
    """Decodes images for all requests of a server; safe for any number of threads."""

    def __init__(self, limits: Limits, *, max_pixels: PixelBudget) -> None:
        """Pages have `max_pixels` at most."""
        self._limits = limits
        self._max_pixels = max_pixels
        self._process = IsolatedProcess()

    def for_request(self) -> Callable[[bytes, str], Page]:
        """A function that makes pages of one request's images, until the request's time is used up."""
        seconds_left = self._limits.decode_seconds

        def decode(content: bytes, name: str) -> Page:
            nonlocal seconds_left
            start = time.monotonic()
            try:
                return self._process.call(
                    decode_page,
                    max(0.0, seconds_left),
                    content,
                    name,
                    max_pixels=self._max_pixels,
                    image_pixels=self._limits.image_pixels,
                )
            except TookTooLong as error:
                raise DocumentError(
                    f"the images of this request take more than {self._limits.decode_seconds:g} s to decode; "
                    "send fewer or smaller ones, saved again as PNG or plain JPEG"
                ) from error
            except WorkerDied as error:
                raise DocumentError(
                    "an image that ends the process that decodes it; save it again as PNG"
                ) from error
            finally:
                seconds_left -= time.monotonic() - start

        return decode

    def close(self) -> None:
        """End the process."""
        self._process.close()
