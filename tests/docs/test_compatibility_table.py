"""The table of peers' tests is the one in the results."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_suite_stands_in_the_table_with_its_counts() -> None:
    suites = json.loads((ROOT / "results/compatibility.json").read_text())["suites"]
    text = (ROOT / "docs/compatibility.md").read_text()
    for suite in suites:
        assert suite["passed"] + suite["not_passed"] == suite["tests"]
        assert f"| {' | '.join(str(value) for value in suite.values())} |" in text
