"""How many scans a JPEG file has: each covers the whole image, so a small file of many takes long."""

import re

from ridgerank.errors import DocumentError

MAX_JPEG_SCANS = 64
"""Progressive files of common programs have about ten."""
_START_OF_SCAN = 0xDA
_END_OF_IMAGE = 0xD9
_MARKER = re.compile(rb"\xff+([^\x00\xff\xd0-\xd7])")
"""A marker; FF 00 and the restart markers D0 to D7 stand within a scan."""


def require_few_scans(data: bytes) -> None:
    """Refuse a JPEG file of more scans than any program writes; other bytes pass."""
    scans = count_scans(data)
    if scans > MAX_JPEG_SCANS:
        raise DocumentError(
            f"a JPEG of more than {MAX_JPEG_SCANS} scans, which takes long to decode; save it as plain JPEG"
        )


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
