"""What docs/reproduce.md says of the miniature is what the committed run says."""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.reproduce.catalogue import CATALOGUE

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "results/miniature/reproduce"
TEXT = (ROOT / "docs/reproduce.md").read_text()


def result(name: str) -> Any:  # noqa: ANN401 (whatever lies there)
    return json.loads((RESULTS / f"{name}.json").read_text())


def quality_lines() -> list[str]:
    """One line per method: its macro figure in both families, behind both retrievers."""
    by_method: dict[str, dict[tuple[str, str], float]] = {}
    for table in ("table1", "table2"):
        for row in result(table)["rows"]:
            if row["source"] == "this run":
                retriever, arm, average = row["cells"][:3]
                by_method.setdefault(arm, {})[table, retriever] = average
    columns = [
        (table, name) for table in ("table1", "table2") for name in ("mini-colqwen", "mini-colqwen-small")
    ]
    return [
        f"| {name} | {' | '.join(f'{row[each]:.1f}' if each in row else '–' for each in columns)} |"
        for name, row in by_method.items()
    ]


def direction_lines() -> list[str]:
    """One line per claim, with the first part of what was found."""
    lines = []
    for each in result("directions"):
        here = "holds" if each["holds"] else "does not hold"
        lines.append(f"| {each['claim']} | {here} | {each['found'].split(';')[0]} |")
    return lines


def test_the_quality_table_is_the_run_s() -> None:
    lines = quality_lines()
    assert len(lines) == 10
    for line in lines:
        assert line in TEXT


def test_the_claims_are_the_run_s() -> None:
    for line in direction_lines():
        assert line in TEXT


def test_the_shift_of_predicted_weights_is_the_run_s() -> None:
    rows = [row["cells"] for row in result("weights")["rows"]]
    assert len(rows) == 72
    shift = fmean(predicted - measured for *_, predicted, measured, _, _, _ in rows)
    assert f"above the measured weight by {shift:.2f} on average" in TEXT


def test_the_committed_run_is_whole() -> None:
    for name in CATALOGUE:
        assert {"json", "md", "tex"} <= {path.suffix[1:] for path in RESULTS.glob(f"{name}.*")}, name
    assert (RESULTS / "report.html").stat().st_size > 100_000
    assert sum(path.stat().st_size for path in RESULTS.iterdir()) < 6 << 20
    assert not list(RESULTS.glob("*-table*"))


def test_every_option_is_documented() -> None:
    for option in ("--only", "--work", "--backbone", "--retriever", "--time-every", "--ocr", "--quick"):
        assert f"`{option}" in TEXT
