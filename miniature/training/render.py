"""Planned pages as images, on the very way a PDF of a corpus takes: drawn, then read by pdfium."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from PIL.Image import Image

from miniature.draw import draw_document
from miniature.world import HEIGHT_PIXELS, WIDTH_PIXELS, PlannedPage
from ridgerank.documents.pdf import PdfReader


def render(pages: Sequence[PlannedPage]) -> list[Image]:
    """An RGB image of each page, 336 x 448 pixels; many at once cost less than one at a time."""
    with tempfile.TemporaryDirectory() as folder, PdfReader() as reader:
        path = Path(folder) / "pages.pdf"
        path.write_bytes(draw_document(pages))
        return [
            reader.read(path, number, max_pixels=WIDTH_PIXELS * HEIGHT_PIXELS)[0]
            for number in range(1, len(pages) + 1)
        ]
