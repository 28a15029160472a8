"""A short run of `make stress`: nothing is lost and nothing is wrong."""

from pathlib import Path

import pytest

from benchmarks.stress import Ledger, stress
from tests.serving.conftest import Corpus


@pytest.mark.slow
def test_a_short_stress_test_loses_nothing_and_nothing_is_wrong(corpus: Corpus, tmp_path: Path) -> None:
    report = stress(Path(corpus.store), corpus.queries[:6], tmp_path, seconds=8.0, seed=5, pause=1.5)
    assert (report["lost"], report["wrong"]) == (0, 0), report["notes"]
    assert report["faults"] > 0
    assert report["operations_by_kind"]["answered at the end"] > 0


def test_a_ledger_adds_up() -> None:
    ledger = Ledger()
    ledger.count("search", 3)
    ledger.count_fault("kill worker")
    ledger.count_fault("flip bit")
    ledger.record("two pages gone", lost=2)
    ledger.record("another answer")
    report = ledger.report()
    assert (report["operations"], report["kills"], report["faults"]) == (3, 1, 2)
    assert (report["lost"], report["wrong"], len(report["notes"])) == (2, 1, 2)
