from pathlib import Path

import pytest

from experiments.datasets.load import load_benchmark
from experiments.datasets.vidore_corpora import VIDORE2, VIDORE3
from ridgerank.errors import DatasetError
from tests.experiments.datasets.hub_copy import write_like_vidore2, write_like_vidore3
from tests.experiments.datasets.test_folder import write


def test_vidore_is_both_families(tmp_path: Path) -> None:
    for source in VIDORE2.corpora:
        write_like_vidore2(tmp_path / source.hub_dataset.name)
    for source in VIDORE3.corpora:
        write_like_vidore3(tmp_path / source.hub_dataset.name)
    second, third = load_benchmark("vidore", tmp_path / "work", languages=["french"], local=tmp_path)
    assert (second.name, third.name) == ("vidore2", "vidore3")
    assert len(third.corpora) == 8
    [only] = load_benchmark("vidore3", tmp_path / "work", corpora=["hr", "cs"], local=tmp_path)
    assert [corpus.name for corpus in only.corpora] == ["cs", "hr"]


def test_an_own_folder_is_named_with_its_path(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / "own" / name, [{"query_id": "1", "text": "revenue"}], ["1 0 report.pdf#3 2"])
    [benchmark] = load_benchmark(f"folder:{tmp_path / 'own'}", tmp_path)
    assert [corpus.name for corpus in benchmark.corpora] == ["one", "two"]
    [some] = load_benchmark(f"folder:{tmp_path / 'own'}", tmp_path, corpora=["two"])
    assert [corpus.name for corpus in some.corpora] == ["two"]
    with pytest.raises(DatasetError, match="no corpus 'three' in own; there are: one, two"):
        load_benchmark(f"folder:{tmp_path / 'own'}", tmp_path, corpora=["three"])


@pytest.mark.parametrize("name", ["vidore1", "folder:", "Miniature"])
def test_an_unknown_benchmark_is_refused_with_the_known_ones(name: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"known: miniature, vidore, vidore2, vidore3, folder:PATH"):
        load_benchmark(name, tmp_path)
