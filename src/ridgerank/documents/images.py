"""Image files through Pillow, and images in memory: upright, RGB, on white, within the pixel budget.

Only PNG, JPEG, TIFF and WebP are tried, whatever the suffix: Pillow knows other formats, some of which
start programs (Ghostscript) or read other files.
"""

import ctypes
import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import IO

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from ridgerank.documents.sources import MAX_DOCUMENT_PAGES, MAX_IMAGE_PIXELS, fit_within_pixels
from ridgerank.errors import DocumentError
from ridgerank.page_sizing import PageSizing, PixelBudget

MAX_JPEG_SCANS = 64
"""Progressive files of common programs have about ten."""
_START_OF_SCAN = 0xDA
_END_OF_IMAGE = 0xD9
_MARKER = re.compile(rb"\xff+([^\x00\xff\xd0-\xd7])")
"""A marker; FF 00 and the restart markers D0 to D7 stand within a scan."""


def count_scans(data: bytes) -> int:
    """The scans of a JPEG file, counted up to one above `MAX_JPEG_SCANS`; metadata is skipped."""
    scans, at = 0, 2
    while scans <= MAX_JPEG_SCANS and (marker := _MARKER.search(data, at)) is not None:
        kind, at = marker[1][0], marker.end()
        if kind == _END_OF_IMAGE:
            break
        scans += kind == _START_OF_SCAN
        at += int.from_bytes(data[at : at + 2], "big")
    return scans


_FORMATS = ("PNG", "JPEG", "TIFF", "WEBP")
_REDUCING_GAP = 2.0
"""Large images are first reduced by whole factors to this many times the final side: fast, and no visible
difference after the final, careful step."""


# libtiff would write what it thinks of a file to stderr; errors still reach us through Pillow.
with suppress(OSError, AttributeError, TypeError):  # a Pillow without libtiff, or one that hides it
    _libtiff = ctypes.CDLL(import_module("PIL._imaging").__file__)
    _libtiff.TIFFSetWarningHandler(None)
    _libtiff.TIFFSetErrorHandler(None)


def count_frames(path: Path) -> int:
    """How many pages the file has: the frames of a TIFF, otherwise one (of an animation, the first)."""
    with path.open("rb") as file, _open_stream(file) as image:
        count = getattr(image, "n_frames", 1) if image.format == "TIFF" else 1
    if count > MAX_DOCUMENT_PAGES:
        raise DocumentError(f"a TIFF of {count:,} frames, more than {MAX_DOCUMENT_PAGES:,}; split it")
    return count


def read_image(path: Path, number: int, *, max_pixels: PixelBudget) -> Image.Image:
    """Frame `number`, counted from 1, normalized and within `max_pixels`; it is never enlarged."""
    with path.open("rb") as file, _open_stream(file) as image:
        if number > 1:
            image.seek(number - 1)
        _require_pixels(image)
        if not isinstance(max_pixels, PageSizing):
            # A JPEG can be decoded at half, a quarter or an eighth of its size: a photo costs half the time.
            columns, rows = fit_within_pixels(*image.size, max_pixels)
            image.draft(None, (int(columns * _REDUCING_GAP), int(rows * _REDUCING_GAP)))
        return shrink_image(normalize_image(image), max_pixels=max_pixels)


def decode_image(data: bytes, *, max_pixels: int | None = None) -> Image.Image:
    """The first frame of an image file in memory, normalized; one above `max_pixels` is refused undecoded."""
    with _open_stream(io.BytesIO(data)) as image:
        _require_pixels(image, max_pixels)
        return normalize_image(image)


def normalize_image(image: Image.Image) -> Image.Image:
    """Convert to RGB, turn as the EXIF orientation says, and show transparent parts on white."""
    turned = ImageOps.exif_transpose(image) if ExifTags.Base.Orientation in image.getexif() else image
    if turned.mode in ("I", "F") or turned.mode.startswith("I;16"):
        turned = _to_eight_bits(turned)
    if turned.has_transparency_data:
        coloured = turned.convert("RGBA")
        white = Image.new("RGBA", coloured.size, "white")
        turned = Image.alpha_composite(white, coloured)
    flat = turned.convert("RGB")
    flat.info = {}  # profiles, thumbnails and comments would travel along to every process
    return flat


def shrink_image(image: Image.Image, *, max_pixels: PixelBudget) -> Image.Image:
    """Make an image of more than `max_pixels` smaller, as the image processor would where there is one."""
    if isinstance(max_pixels, PageSizing):
        fit_within_pixels(*image.size, max_pixels.max_pixels)  # refuses what is too narrow to be read
        reading_size = max_pixels.reading_size(*image.size)
        return image if reading_size is None else image.resize(reading_size, max_pixels.resample)
    size = fit_within_pixels(*image.size, max_pixels)
    if image.width * image.height <= max_pixels:
        return image
    return image.resize(size, Image.Resampling.LANCZOS, reducing_gap=_REDUCING_GAP)


def _to_eight_bits(image: Image.Image) -> Image.Image:
    """Convert deep greyscale to 8 bits, scaled by its range of values; Pillow would clip them at 255."""
    values = np.nan_to_num(np.asarray(image, dtype=np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    lowest, highest = float(values.min()), float(values.max())
    if lowest < 0 or highest > 65535:
        values = (values - lowest) * (255 / ((highest - lowest) or 1.0))
    elif image.mode.startswith("I;16") or highest > 255:
        values = values * (255 / 65535)
    elif image.mode == "F" and highest <= 1:
        values = values * 255
    return Image.fromarray(np.rint(values).astype(np.uint8))


def _require_pixels(image: Image.Image, max_pixels: int | None = None) -> None:
    """Check the size a file claims before anything is decoded: it may be larger than the memory."""
    limit = MAX_IMAGE_PIXELS if max_pixels is None else max_pixels
    if image.width * image.height > limit:
        raise DocumentError(
            f"an image of {image.width} x {image.height}, above {limit:,} pixels; scale it down"
        )


@contextmanager
def _open_stream(file: IO[bytes]) -> Iterator[Image.Image]:
    """Open an image without decoding it; an error inside the block becomes a `DocumentError`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of odd metadata, and of sizes judged here
        try:
            with Image.open(file, formats=_FORMATS) as image:
                _require_pixels(image)
                if image.format in ("JPEG", "MPO"):
                    start = file.tell()
                    file.seek(0)
                    if count_scans(file.read()) > MAX_JPEG_SCANS:
                        raise DocumentError(
                            f"a JPEG of more than {MAX_JPEG_SCANS} scans, which takes long to decode; "
                            "save it as plain JPEG"
                        )
                    file.seek(start)
                yield image
        except (DocumentError, MemoryError):
            raise
        except UnidentifiedImageError as error:
            raise DocumentError(
                "named as an image but not a PNG, JPEG, TIFF or WebP; give it its true suffix"
            ) from error
        except Image.DecompressionBombError as error:
            raise DocumentError(f"an image of absurd size ({error}); scale it down") from error
        except Exception as error:  # decoders raise whatever a broken file leads them into
            reason = " ".join(str(error).split()) or type(error).__name__
            raise DocumentError(
                f"a broken image ({reason}); get a complete copy, or save it again"
            ) from error
