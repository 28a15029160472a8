"""Text and boxes of words of pages without a text layer, recognized by `rapidocr` once and cached."""

import hashlib
from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgerank.atomic import replace_text_file
from ridgerank.documents.images import read_image
from ridgerank.documents.pdf import PdfReader
from ridgerank.documents.render import find_page
from ridgerank.documents.text import (
    BoxedWord,
    TextBox,
    clean_text,
    match_words,
    sort_in_reading_order,
    split_line,
    write_in_reading_order,
)
from ridgerank.extras import require_packages
from ridgerank.records import Page

if TYPE_CHECKING:
    from PIL.Image import Image

    from ridgerank.documents.render import PageRef, ReadItem

MIN_ALPHANUMERICS = 16
OCR_PIXELS = 1_600_000
"""Pixels of a page for OCR: small print of a letter page stays legible, and one core needs seconds."""


class Recognizer:
    """One OCR engine, loaded at the first page that needs it; `cache` is a folder of recognized texts."""

    def __init__(self, *, cache: Path | None = None) -> None:
        """Refuse at once if the extra is missing."""
        require_packages("rapidocr", "onnxruntime")
        self._version = version("rapidocr")
        self._cache = cache
        self._engine: Any = None

    def read(self, page: Page) -> str:
        """The page's text as its image shows it; from the cache if the same image was read before."""
        if self._cache is None:
            return self._recognize(page.image)
        settings = f"{page.page_id} {page.image.size} rapidocr {self._version}"
        key = hashlib.blake2b(settings.encode(), digest_size=16).hexdigest()
        cached_file = self._cache / f"{key}.txt"
        if cached_file.exists():
            return cached_file.read_text(encoding="utf-8")
        text = self._recognize(page.image)
        with replace_text_file(cached_file) as file:
            file.write(text)
        return text

    def lines(self, image: "Image") -> list[TextBox]:
        """The lines of an image, in no order; boxes are in pixels."""
        if self._engine is None:
            from rapidocr import RapidOCR

            self._engine = RapidOCR(params={"Global.log_level": "error"})
        result = self._engine(np.asarray(image.convert("RGB"))[:, :, ::-1])  # it expects BGR
        if result.txts is None:
            return []
        return [_text_box(text, box) for text, box in zip(result.txts, result.boxes, strict=True)]

    def _recognize(self, image: "Image") -> str:
        return write_in_reading_order(self.lines(image))


def recognize_pages(pages: Iterable["ReadItem"], recognizer: Recognizer) -> Generator["ReadItem", None, None]:
    """Pass pages on; one without a text layer gets the text recognized in its image, if that is more."""
    for page in pages:
        if isinstance(page, Page) and has_little_text(page.text):
            text = recognizer.read(page)
            more = _count_alphanumerics(text) > _count_alphanumerics(page.text)
            yield replace(page, text=text) if more else page
        else:
            yield page


@lru_cache(maxsize=128)
def place_words(ref: "PageRef", text: str) -> tuple[BoxedWord, ...]:
    """The words of a stored text that are found on the page again; boxes are fractions of its size."""
    return tuple(match_words(text, _read_words(ref)))


def find_words(paths: Sequence[Path], page_id: str, text: str) -> tuple[BoxedWord, ...]:
    """`place_words` of a page in whichever of the documents holds it; none if none does any more."""
    ref = find_page(paths, page_id)
    return () if ref is None else place_words(ref, text)


def _read_words(ref: "PageRef") -> list[TextBox]:
    with PdfReader() as pdfs:
        if ref.source.is_pdf:
            words = pdfs.words(ref.source.path, ref.number)
            if not has_little_text(" ".join(word.text for word in words)):
                return words
            image, _ = pdfs.read(ref.source.path, ref.number, max_pixels=OCR_PIXELS)
        else:
            image = read_image(ref.source.path, ref.number, max_pixels=OCR_PIXELS)
    lines = sort_in_reading_order(_recognizer().lines(image))
    return [word for line in lines for word in split_line(line, image.size)]


@cache
def _recognizer() -> Recognizer:
    return Recognizer()


def has_little_text(text: str) -> bool:
    """Whether a text layer has too few letters and digits to represent its page."""
    return _count_alphanumerics(text) < MIN_ALPHANUMERICS


def _count_alphanumerics(text: str) -> int:
    return sum(character.isalnum() for character in text)


def _text_box(text: str, box: Any) -> TextBox:  # noqa: ANN401 (four corners)
    corners = np.asarray(box, dtype=np.float64)
    left, top = corners.min(axis=0).tolist()
    right, bottom = corners.max(axis=0).tolist()
    return TextBox(clean_text(text), left, top, right, bottom)
