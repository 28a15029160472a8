"""What docs/serving.md and docs/security.md say is what the committed run and the code say."""

import json
import re
from dataclasses import asdict
from pathlib import Path

from ridgerank.documents.images import MAX_JPEG_SCANS
from ridgerank.documents.sources import MAX_DOCUMENT_PAGES, MAX_FILE_BYTES, MAX_IMAGE_PIXELS
from ridgerank.records import MAX_QUERY_CHARACTERS
from ridgerank.serving.server import END_SECONDS, GRACE_SECONDS
from ridgerank.serving.settings import Limits

ROOT = Path(__file__).parents[2]
SECURITY = (ROOT / "docs/security.md").read_text()


def test_the_figures_of_load_are_the_run_s() -> None:
    results = json.loads((ROOT / "results/serving.json").read_text())
    text = (ROOT / "docs/serving.md").read_text().replace("\n", " ")
    assert f"eight callers get {results['throughput_eight_over_one']}x the throughput of one" in text
    assert f"p99 is {results['p99_ten_times_over_capacity']}x that at capacity" in text
    assert results["answers_after_equal_before"]
    assert results["concurrent_answers_equal_lone"]
    assert not results["other_statuses"]


def test_the_codes_of_errors_are_those_the_server_sends() -> None:
    [section] = re.findall(
        r"^## Errors\n(.*?)^## ", (ROOT / "docs/serving.md").read_text(), flags=re.S | re.M
    )
    documented = set(re.findall(r"`([a-z_]+)`", section))
    source = "".join(path.read_text() for path in (ROOT / "src/ridgerank/serving").rglob("*.py"))
    raised = set(re.findall(r"ApiError\(\s*\d+,\s*\"([a-z_]+)\"", source))
    assert raised <= documented
    assert {code for code in documented if f'"{code}"' not in source} == set()


def test_the_table_has_every_limit_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `([a-z_]+)` \| ([\d,.]+) \|", SECURITY, flags=re.M))
    documented = {name: float(value.replace(",", "")) for name, value in rows.items()}
    assert documented == asdict(Limits())


def test_the_other_limits_are_those_of_the_code() -> None:
    assert f"a query of {MAX_QUERY_CHARACTERS:,} characters" in SECURITY
    assert f"a JPEG of {MAX_JPEG_SCANS} scans" in SECURITY
    assert f"a PDF of {MAX_DOCUMENT_PAGES:,} pages, a file of {MAX_FILE_BYTES >> 30} GiB" in SECURITY
    assert f"{MAX_IMAGE_PIXELS // 10**6} million pixels" in SECURITY
    assert GRACE_SECONDS < END_SECONDS < 10
