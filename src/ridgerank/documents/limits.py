"""How large a file, a document and a page may be. Pure arithmetic; knows no format."""

import math

from ridgerank.errors import DocumentError

MAX_FILE_BYTES = 4 << 30
MAX_DOCUMENT_PAGES = 50_000
MAX_IMAGE_PIXELS = 150_000_000
"""An A0 poster scanned at 300 dpi has 139 million; at the limit a process needs 1.2 GB for a moment."""
MAX_ASPECT_RATIO = 200
"""Beyond it the image processors of the backbones refuse too, and nothing could be read anyway."""


def fit_within_pixels(width: float, height: float, max_pixels: int) -> tuple[int, int]:
    """Find the largest whole size of the shape `width` : `height` with at most `max_pixels` pixels.

    Each side is the exact size rounded down, so at most one row and one column of the budget are lost;
    a side never falls below 1. A shape without area, infinite or too narrow is a `DocumentError`.
    """
    if not (math.isfinite(width) and math.isfinite(height) and width > 0 and height > 0):
        raise DocumentError(f"a page of {width:g} x {height:g}, which has no area; repair or remove it")
    if max(width, height) > MAX_ASPECT_RATIO * min(width, height):
        raise DocumentError(
            f"a page of {width:g} x {height:g}, longer than {MAX_ASPECT_RATIO} times its width; cut it up"
        )
    ratio = width / height
    columns = min(max(1, math.floor(math.sqrt(max_pixels * ratio))), max_pixels)
    rows = min(max(1, math.floor(math.sqrt(max_pixels / ratio))), max_pixels // columns)
    return columns, rows
