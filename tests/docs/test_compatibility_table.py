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


def test_what_mteb_measures_is_in_the_results() -> None:
    result = json.loads((ROOT / "results/mteb_task.json").read_text())
    text = " ".join((ROOT / "docs/adapters.md").read_text().split())
    assert (
        f"On these {result['queries']} queries MTEB {result['mteb']} measures an nDCG@5 of "
        f"{result['mteb_ndcg_at_5']:.2f}, `ridgerank evaluate` {result['ridgerank_ndcg_at_5']:.2f}, "
        f"of the retriever alone {result['retriever_ndcg_at_5']:.2f}"
    ) in text
