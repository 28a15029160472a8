"""PDF files through pdfium: how many pages, and one page as an image and its text.

pdfium keeps global state and is not safe in threads; every call into it here holds one lock. Documents and
pages are closed where they were opened, never left to the garbage collector.
"""

import logging
import os
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Self, TypeVar

import pypdfium2
import pypdfium2.raw
from PIL.Image import Image

from ridgerank.documents.sources import MAX_DOCUMENT_PAGES, FileStamp, fit_within_pixels, stamp_file
from ridgerank.documents.text import TextBox, page_text, page_words
from ridgerank.errors import DocumentError

logging.getLogger("pypdfium2").setLevel(logging.ERROR)  # it warns of forms that are shown without their code
Content = TypeVar("Content")
_PDFIUM = threading.RLock()
_HEADER_WITHIN = 1024
"""How far into a file its `%PDF-` may stand; pdfium looks no further."""
_END_WITHIN = 64 << 10
"""How far from the end its `%%EOF` may stand: mail gateways and web servers append to files."""


def count_pages(path: Path) -> int:
    """How many pages the file has; a `DocumentError` says why it has none that can be read."""
    with _PDFIUM, closing(_open(path)) as document:
        count = len(document)
    if count == 0:
        raise DocumentError("a PDF without pages; export it again")
    if count > MAX_DOCUMENT_PAGES:
        raise DocumentError(f"a PDF of {count:,} pages, more than {MAX_DOCUMENT_PAGES:,}; split it")
    return count


def is_truncated(path: Path) -> bool:
    """Whether the end of the file is missing. pdfium repairs such files, with pages or parts of them lost."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _END_WITHIN))
        return b"%%EOF" not in file.read()


class PdfReader:
    """Reads pages, keeping the last document open: a report is opened once, not once for each page."""

    def __init__(self) -> None:
        self._opened: tuple[Path, FileStamp] | None = None
        self._document: pypdfium2.PdfDocument | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def read(self, path: Path, number: int, *, max_pixels: int) -> tuple[Image, str]:
        """Page `number`, counted from 1: its RGB image, scaled to just within `max_pixels`, and its text."""
        return self._read(path, number, lambda page: (_render(page, max_pixels=max_pixels), page_text(page)))

    def words(self, path: Path, number: int) -> list[TextBox]:
        """The words of page `number`, counted from 1, and where they stand: see `page_words`."""
        return self._read(path, number, page_words)

    def _read(self, path: Path, number: int, read: Callable[[pypdfium2.PdfPage], Content]) -> Content:
        with _PDFIUM:
            try:
                with closing(self._open(path)[number - 1]) as page:
                    return read(page)
            except pypdfium2.PdfiumError as error:
                raise DocumentError(f"pdfium cannot read this page ({error}); repair the PDF") from error

    def _open(self, path: Path) -> pypdfium2.PdfDocument:
        file_version = (path, stamp_file(path))
        if self._document is None or self._opened != file_version:
            self._close()
            self._document, self._opened = _open(path), file_version
            self._document.init_forms()  # before any page is loaded, or what was filled in is not drawn
        return self._document

    def _close(self) -> None:
        with _PDFIUM:
            if self._document is not None:
                self._document.close()
            self._document = self._opened = None


def _open(path: Path) -> pypdfium2.PdfDocument:
    """Open a document below pypdfium2's own opening, which leaves some open and names no cause."""
    with path.open("rb") as file:
        if b"%PDF-" not in file.read(_HEADER_WITHIN):
            raise DocumentError("named as a PDF but not one (no %PDF- at its start); give it its true suffix")
    handle = pypdfium2.raw.FPDF_LoadDocument(os.fsencode(path), None)
    if handle:
        return pypdfium2.PdfDocument(handle)
    code = pypdfium2.raw.FPDF_GetLastError()
    if code == pypdfium2.raw.FPDF_ERR_PASSWORD:
        raise DocumentError("encrypted, a password is needed; save a copy without one")
    if code == pypdfium2.raw.FPDF_ERR_SECURITY:
        raise DocumentError("encrypted in a way pdfium does not know; save a copy without encryption")
    raise DocumentError("a truncated or damaged PDF; get a complete copy, or repair it")


def _render(page: pypdfium2.PdfPage, *, max_pixels: int) -> Image:
    width, height = page.get_size()
    columns, rows = fit_within_pixels(width, height, max_pixels)
    # pypdfium2 rounds sides up: without the hair less, rounding errors would add a row to the exact size.
    scale = min(columns / width, rows / height) * (1 - 1e-9)
    with closing(page.render(scale=scale, rev_byteorder=True)) as bitmap:
        # The image may borrow the memory of the bitmap; a copy outlives it.
        image: Image = bitmap.to_pil().copy()
    return image
