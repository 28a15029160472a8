"""docs/security.md names every limit of a server, with its default."""

import re
from dataclasses import asdict
from pathlib import Path

from ridgerank.documents.images import MAX_JPEG_SCANS
from ridgerank.documents.sources import MAX_DOCUMENT_PAGES, MAX_FILE_BYTES, MAX_IMAGE_PIXELS
from ridgerank.records import MAX_QUERY_CHARACTERS
from ridgerank.serving.server import END_SECONDS, GRACE_SECONDS
from ridgerank.serving.settings import Limits

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/security.md").read_text()


def test_the_table_has_every_limit_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `([a-z_]+)` \| ([\d,.]+) \|", TEXT, flags=re.M))
    documented = {name: float(value.replace(",", "")) for name, value in rows.items()}
    assert documented == asdict(Limits())


def test_the_other_limits_are_those_of_the_code() -> None:
    assert f"a query of {MAX_QUERY_CHARACTERS:,} characters" in TEXT
    assert f"a JPEG of {MAX_JPEG_SCANS} scans" in TEXT
    assert f"a PDF of {MAX_DOCUMENT_PAGES:,} pages, a file of {MAX_FILE_BYTES >> 30} GiB" in TEXT
    assert f"{MAX_IMAGE_PIXELS // 10**6} million pixels" in TEXT
    assert GRACE_SECONDS < END_SECONDS < 10
