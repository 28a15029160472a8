"""Image files through Pillow, and images in memory: upright, RGB, on white, within the pixel budget.

Only the formats the suffixes promise are tried, whatever the suffix: Pillow knows others, some of which
start programs (Ghostscript) or read other files.
"""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from ridgerank.documents.limits import MAX_DOCUMENT_PAGES, MAX_IMAGE_PIXELS, fit
from ridgerank.errors import DocumentError

_FORMATS = ("PNG", "JPEG", "TIFF", "WEBP")
_GAP = 2.0
"""Large images are first reduced by whole factors to this many times the final side: fast, and no visible
difference after the final, careful step."""


def count_frames(path: Path) -> int:
    """How many pages the file has: the frames of a TIFF, otherwise one (of an animation, the first)."""
    with _opened(path) as image:
        count = getattr(image, "n_frames", 1) if image.format == "TIFF" else 1
    if count > MAX_DOCUMENT_PAGES:
        raise DocumentError(f"a TIFF of {count:,} frames, more than {MAX_DOCUMENT_PAGES:,}; split it")
    return count


def read_image(path: Path, number: int, *, max_pixels: int) -> Image.Image:
    """Frame `number`, counted from 1, as a page: see `as_page`."""
    with _opened(path) as image:
        if number > 1:
            image.seek(number - 1)
        _refuse_bombs(image)
        columns, rows = fit(*image.size, max_pixels)
        # A JPEG can be decoded at half, a quarter or an eighth of its size: a photo costs half the time.
        image.draft(None, (int(columns * _GAP), int(rows * _GAP)))
        return as_page(image, max_pixels=max_pixels)


def decoded(data: bytes, *, max_pixels: int | None = None) -> Image.Image:
    """The first frame of an image file held in memory, at its full size: see `upright`.

    One that claims more than `max_pixels`, or than any image may have, is refused before it is decoded.
    """
    with _decoding(io.BytesIO(data)) as image:
        _refuse_bombs(image, max_pixels)
        return upright(image)


def as_page(image: Image.Image, *, max_pixels: int) -> Image.Image:
    """`upright`, made smaller if it has more than `max_pixels` pixels; never made larger."""
    return shrink(upright(image), max_pixels=max_pixels)


def upright(image: Image.Image) -> Image.Image:
    """Make an RGB image, turned as its EXIF orientation says, what is transparent in it shown on white."""
    turned = ImageOps.exif_transpose(image) if ExifTags.Base.Orientation in image.getexif() else image
    if turned.mode in ("I", "F") or turned.mode.startswith("I;16"):
        turned = _eight_bits(turned)
    if turned.has_transparency_data:
        coloured = turned.convert("RGBA")
        white = Image.new("RGBA", coloured.size, "white")
        turned = Image.alpha_composite(white, coloured)
    flat = turned.convert("RGB")
    flat.info = {}  # profiles, thumbnails and comments would travel along to every process
    return flat


def shrink(image: Image.Image, *, max_pixels: int) -> Image.Image:
    """`image`, made smaller if it has more than `max_pixels` pixels."""
    size = fit(*image.size, max_pixels)
    if image.width * image.height <= max_pixels:
        return image
    return image.resize(size, Image.Resampling.LANCZOS, reducing_gap=_GAP)


def _eight_bits(image: Image.Image) -> Image.Image:
    """Deep greyscale as greyscale of 8 bits, by what its values reach; Pillow would cut them off at 255."""
    values = np.nan_to_num(np.asarray(image, dtype=np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    lowest, highest = float(values.min()), float(values.max())
    if lowest < 0 or highest > 65535:
        values = (values - lowest) * (255 / (highest - lowest))
    elif image.mode.startswith("I;16") or highest > 255:
        values = values * (255 / 65535)
    elif image.mode == "F" and highest <= 1:
        values = values * 255
    return Image.fromarray(np.rint(values).astype(np.uint8))


def _refuse_bombs(image: Image.Image, max_pixels: int | None = None) -> None:
    """Judge the size a file claims before anything is decoded: it may be more than any memory holds."""
    limit = MAX_IMAGE_PIXELS if max_pixels is None else max_pixels
    if image.width * image.height > limit:
        raise DocumentError(
            f"an image of {image.width} x {image.height}, above {limit:,} pixels; scale it down"
        )


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    with path.open("rb") as file, _decoding(file) as image:
        yield image


@contextmanager
def _decoding(file: IO[bytes]) -> Iterator[Image.Image]:
    """Open an image, nothing decoded yet; whatever goes wrong inside the block is a `DocumentError`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of odd metadata, and of sizes judged here
        try:
            with Image.open(file, formats=_FORMATS) as image:
                _refuse_bombs(image)
                yield image
        except (DocumentError, MemoryError):
            raise
        except UnidentifiedImageError as error:
            raise DocumentError(
                "named as an image but is no PNG, JPEG, TIFF or WebP; give it its true suffix"
            ) from error
        except Image.DecompressionBombError as error:
            raise DocumentError(f"an image of absurd size ({error}); scale it down") from error
        except Exception as error:  # decoders raise whatever a broken file leads them into
            raise DocumentError(
                f"a broken image ({_one_line(error)}); get a complete copy, or save it again"
            ) from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
