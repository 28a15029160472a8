"""The table of peers' tests, and what MTEB measures, are those in the results."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_suite_and_quick_start_stands_in_its_table() -> None:
    results = json.loads((ROOT / "results/compatibility.json").read_text())
    text = (ROOT / "docs/compatibility.md").read_text()
    assert all(suite["passed"] + suite["not_passed"] == suite["tests"] for suite in results["suites"])
    for row in [*results["suites"], *results["quick_starts"]]:
        assert f"| {' | '.join(str(value) for value in row.values())} |" in text
