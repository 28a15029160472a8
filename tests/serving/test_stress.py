"""A short run of `make stress`: nothing is wrong."""

import shutil
from pathlib import Path

import pytest

from benchmarks.stress import STORES, stress
from tests.serving.conftest import Corpus


@pytest.mark.slow
def test_stores_that_change_under_traffic_give_no_wrong_answer(corpus: Corpus, tmp_path: Path) -> None:
    stores = {name: Path(shutil.copytree(corpus.store, tmp_path / name)) for name in STORES}
    report = stress(stores, list(corpus.queries[:4]), tmp_path, seconds=8.0, seed=5)
    assert report["wrong"] == 0, report["notes"]
    assert report["statuses"]["200"] > 0
    assert report["changes"]["document indexed"] > 0
