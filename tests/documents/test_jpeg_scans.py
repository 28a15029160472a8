"""JPEG files of many scans: counted without decoding, refused before it."""

import io

import pytest
from PIL import Image

from ridgerank.documents.images import MAX_JPEG_SCANS, count_scans, decode_image
from ridgerank.errors import DocumentError


def jpeg(*, progressive: bool, comment: bytes = b"") -> bytes:
    encoded = io.BytesIO()
    image = Image.effect_noise((64, 64), 50).convert("RGB")
    image.save(encoded, "JPEG", progressive=progressive, comment=comment)
    return encoded.getvalue()


def many_scans(scans: int) -> bytes:
    """A progressive file whose last scan is there again and again."""
    data = jpeg(progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:last] + data[last:-2] * scans + b"\xff\xd9"


def test_scans_are_counted_and_metadata_is_not() -> None:
    assert count_scans(jpeg(progressive=False, comment=b"\xff\xda" * 500)) == 1
    progressive = count_scans(jpeg(progressive=True))
    assert 2 < progressive < MAX_JPEG_SCANS
    assert count_scans(many_scans(30)) == progressive + 29
    assert count_scans(b"") == count_scans(b"\xff") == 0


def test_a_file_of_many_scans_is_refused_before_it_is_decoded() -> None:
    assert decode_image(jpeg(progressive=True)).size == (64, 64)
    with pytest.raises(DocumentError, match="scans"):
        decode_image(many_scans(5000))
