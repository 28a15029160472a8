"""Images that come in and images that go out, each handled in a process of its own within a time limit.

What callers send is decoded for a model; pages are rendered from the indexed documents and kept in bounded
memory. A parser can crash, and take long. A request names a page by its id only; the store knows which file
that is.
"""

import io
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Lock

from PIL import Image

from ridgerank.documents.render import decode_page, draw_page
from ridgerank.errors import DocumentError
from ridgerank.page_sizing import PixelBudget
from ridgerank.processes import IsolatedProcess, TookTooLong, WorkerDied
from ridgerank.records import Page
from ridgerank.serving.http_errors import ApiError
from ridgerank.serving.settings import Limits
from ridgerank.store.page_store import ByteLRU, PageStore
from ridgerank.store.sidecar import recall_sources

PIXELS = 2_000_000
"""Of a page image: enough to read small print."""


class PageImages:
    """Renders pages one at a time, keeps the last ones in memory, and decodes what callers send.

    Safe for any number of threads.
    """

    def __init__(self, limits: Limits, *, max_pixels: PixelBudget) -> None:
        """Images are decoded to pages of `max_pixels` at most."""
        self._limits = limits
        self._max_pixels = max_pixels
        self._images: ByteLRU[tuple[str, str], bytes] = ByteLRU(limits.image_cache_bytes, count_bytes=len)
        """By store and page id, as `_renders`."""
        self._renders: dict[tuple[str, str], Future[bytes]] = {}
        self._lock = Lock()
        self._renderer = ThreadPoolExecutor(1, thread_name_prefix="ridgerank-render")
        self._drawing, self._decoding = IsolatedProcess(), IsolatedProcess()

    def render(self, store: PageStore, page_id: str) -> Future[bytes]:
        """A stored page as PNG, rendered or from memory; requests for one page share its rendering."""
        key = (store.uri, page_id)
        with self._lock:
            if (image := self._images.get(key)) is not None:
                ready: Future[bytes] = Future()
                ready.set_result(image)
                return ready
            if key not in self._renders:
                if len(self._renders) >= self._limits.waiting_renders:
                    raise ApiError(429, "overloaded", "too many pages wait to be rendered", retry_after=1)
                self._renders[key] = self._renderer.submit(self._render, store, page_id)
            return self._renders[key]

    def thumbnail(self, store: PageStore, page_id: str) -> tuple[bytes, str]:
        """The small image in the store and its media type: call it outside the event loop."""
        [page] = store.pages([page_id])
        if not page.thumbnail:
            raise ApiError(404, "no_picture", "the page was stored without a thumbnail")
        with Image.open(io.BytesIO(page.thumbnail)) as image:
            return page.thumbnail, image.get_format_mimetype() or "application/octet-stream"

    def end_processes(self) -> None:
        """End the processes that decode and draw, whatever they do."""
        self._decoding.close()
        self._drawing.close()

    def close(self) -> None:
        """Stop at once."""
        self.end_processes()
        self._renderer.shutdown(cancel_futures=True)

    def _render(self, store: PageStore, page_id: str) -> bytes:
        key = (store.uri, page_id)
        try:
            [stored] = store.pages([page_id])
            name = (*stored.references, page_id)[0]
            paths = recall_sources(store.uri, [stored.source])
            seconds = self._limits.render_seconds
            data = self._drawing.call(draw_page, seconds, paths, page_id, max_pixels=PIXELS)
            if data is None:
                gone = f"the document of {name} is no longer where it was indexed"
                raise ApiError(404, "document_gone", gone)
            self._images.put(key, data)
            return data
        except (TookTooLong, WorkerDied) as error:
            late = isinstance(error, TookTooLong)
            what = f"takes more than {seconds:g} s to draw" if late else "ends the process that draws it"
            raise ApiError(422, "bad_document", f"{name} {what}; look at its document") from error
        finally:
            with self._lock:
                del self._renders[key]

    def decoder(self) -> Callable[[bytes, str, str], Page]:
        """A function that makes pages of one request's images: of a file's bytes, a name and a text.

        It stops when the request's time is used up.
        """
        limits, seconds_left = self._limits, self._limits.decode_seconds

        def decode(content: bytes, name: str, text: str) -> Page:
            nonlocal seconds_left
            start = time.monotonic()
            made = partial(decode_page, max_pixels=self._max_pixels, image_pixels=limits.image_pixels)
            try:
                return self._decoding.call(made, max(0.0, seconds_left), content, name, text)
            except TookTooLong as error:
                raise DocumentError(
                    f"the images of this request take more than {limits.decode_seconds:g} s to decode; "
                    "send fewer or smaller ones, saved again as PNG or plain JPEG"
                ) from error
            except WorkerDied as error:
                raise DocumentError(
                    "an image that ends the process that decodes it; save it again as PNG"
                ) from error
            finally:
                seconds_left -= time.monotonic() - start

        return decode
