"""What a server does with files of strangers, as functions that a process of its own is told to call.

They import no model, so that the process starts quickly (`isolated_process.py`).
"""

import io
from collections.abc import Sequence
from pathlib import Path

from ridgerank.documents.images import decode_image
from ridgerank.documents.pages import PageRef, list_pages, page_from_image, render_pages
from ridgerank.page_sizing import PixelBudget
from ridgerank.records import Page


def decode_page(content: bytes, name: str, *, max_pixels: PixelBudget, image_pixels: int) -> Page:
    """The page of an image file; an image of more than `image_pixels` is refused."""
    image = decode_image(content, max_pixels=image_pixels)
    return page_from_image(image, name, max_pixels=max_pixels)


def draw_page(paths: Sequence[Path], page_id: str, *, max_pixels: int) -> bytes | None:
    """A page as a PNG file, from whichever of the documents holds it; None where none does any more."""
    for ref in list_pages(paths):
        if isinstance(ref, PageRef) and ref.page_id == page_id:
            for page in render_pages([ref], max_pixels=max_pixels):
                if isinstance(page, Page):
                    encoded = io.BytesIO()
                    page.image.save(encoded, "PNG", compress_level=1)
                    return encoded.getvalue()
    return None
