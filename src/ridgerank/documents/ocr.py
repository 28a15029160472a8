"""Text of pages that carry none: read off the image by `rapidocr`, once, and remembered.

The wheel carries its models, so nothing is fetched. A page counts as without text when its layer has fewer
than `FEW_SIGNS` letters and digits: scans often carry a stamp or a page number.
"""

import hashlib
from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgerank.atomic import replacing_text
from ridgerank.documents.pdf_text import clean
from ridgerank.documents.reading_order import Piece, read_in_order
from ridgerank.errors import DocumentError
from ridgerank.records import Page

if TYPE_CHECKING:
    from PIL.Image import Image

    from ridgerank.documents.pages import Read

FEW_SIGNS = 16
OCR_PIXELS = 1_600_000
"""Pixels of a page that is to be read: small print of a letter page stays legible, a core needs seconds."""


class Recognizer:
    """One OCR engine, loaded at the first page it is needed for; `cache` is a folder of texts it has read."""

    def __init__(self, *, cache: Path | None = None, threads: int | None = None) -> None:
        """Refuse at once where the extra is missing. `threads` defaults to what the engine finds."""
        try:
            self._version = version("rapidocr")
            version("onnxruntime")
        except PackageNotFoundError as error:
            raise DocumentError(
                f"reading pages without a text layer needs {error.name}; "
                "install it with: pip install 'ridgerank[ocr]'"
            ) from error
        self._cache = cache
        self._threads = threads
        self._engine: Any = None

    def read(self, page: Page) -> str:
        """The page's text as its image shows it; from the cache where the same image was read before."""
        if self._cache is None:
            return self._recognize(page.image)
        known = self._cache / f"{self._key(page)}.txt"
        if known.exists():
            return known.read_text(encoding="utf-8")
        text = self._recognize(page.image)
        with replacing_text(known) as file:
            file.write(text)
        return text

    def _key(self, page: Page) -> str:
        """The page by its content, how large it was drawn, and what reads it."""
        settings = f"{page.page_id} {page.image.size} rapidocr {self._version}"
        return hashlib.blake2b(settings.encode(), digest_size=16).hexdigest()

    def _recognize(self, image: "Image") -> str:
        if self._engine is None:
            self._engine = _engine(self._threads)
        found = self._engine(np.asarray(image.convert("RGB"))[:, :, ::-1])  # it expects BGR
        if found.txts is None:
            return ""
        return read_in_order([_piece(text, box) for text, box in zip(found.txts, found.boxes, strict=True)])


def recognize(
    pages: Iterable["Read"],
    recognizer: Recognizer,
    *,
    recognized: Callable[[Page], None] = lambda page: None,
) -> Generator["Read", None, None]:
    """Pass pages on, those without a text layer with the text their image shows.

    `recognized` is told of every page that was read so, for a progress bar. What is no page passes through,
    and a layer of few signs stays where the image yields even fewer.
    """
    for page in pages:
        if isinstance(page, Page) and lacks_text(page.text):
            text = recognizer.read(page)
            read = replace(page, text=text) if count_signs(text) > count_signs(page.text) else page
            recognized(read)
            yield read
        else:
            yield page


def lacks_text(text: str) -> bool:
    """Whether a text layer says too little to stand for its page."""
    return count_signs(text) < FEW_SIGNS


def count_signs(text: str) -> int:
    """How many letters and digits there are."""
    return sum(sign.isalnum() for sign in text)


def _engine(threads: int | None) -> Any:  # noqa: ANN401 (the package has no types)
    from rapidocr import RapidOCR

    params: dict[str, Any] = {"Global.log_level": "error"}
    if threads is not None:
        params |= {f"EngineConfig.onnxruntime.{kind}_op_num_threads": threads for kind in ("intra", "inter")}
    return RapidOCR(params=params)


def _piece(text: str, box: Any) -> Piece:  # noqa: ANN401 (four corners)
    corners = np.asarray(box, dtype=np.float64)
    left, top = corners.min(axis=0).tolist()
    right, bottom = corners.max(axis=0).tolist()
    return Piece(clean(text), left, top, right, bottom)
