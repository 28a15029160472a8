"""Images of a request decoded in a process of their own, within a time limit for all of them together."""

import time
from collections.abc import Callable

from ridgerank.documents.render import decode_page
from ridgerank.errors import DocumentError
from ridgerank.isolated_process import IsolatedProcess, TookTooLong
from ridgerank.page_sizing import PixelBudget
from ridgerank.records import Page
from ridgerank.serving.serve_settings import Limits
from ridgerank.worker_process import WorkerDied


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
