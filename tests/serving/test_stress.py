"""A short run of `make stress`: nothing is lost and nothing is wrong."""

from pathlib import Path

import pytest

from benchmarks.stress import expected_rankings, stress
from tests.serving.conftest import Corpus


@pytest.mark.slow
def test_a_short_stress_test_loses_nothing_and_nothing_is_wrong(corpus: Corpus, tmp_path: Path) -> None:
    store = Path(corpus.store)
    expected = expected_rankings(store, list(corpus.queries[:6]))
    report = stress(store, expected, tmp_path, seconds=8.0, seed=5, pause=1.5)
    assert (report["lost"], report["wrong"]) == (0, 0), report["notes"]
    assert report["faults"] > 0
    assert report["operations_by_kind"]["answered at the end"] > 0
