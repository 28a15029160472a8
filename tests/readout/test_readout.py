from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from ridgerank.errors import ArtifactError, LineageMismatch
from ridgerank.readout.readout import Readout
from tests.test_lineage import LINEAGE


@pytest.fixture
def readout() -> Readout:
    vector = np.random.default_rng(0).standard_normal(8)
    return Readout(vector=vector, penalty=1000.0, lists=154, pairs=3080, lineage=LINEAGE)


def test_a_readout_reads_back_to_the_last_bit(readout: Readout, tmp_path: Path) -> None:
    readout.save(tmp_path / "default.safetensors")
    loaded = Readout.load(tmp_path / "default.safetensors", lineage=LINEAGE)
    np.testing.assert_array_equal(loaded.vector, readout.vector)
    assert (loaded.penalty, loaded.lists, loaded.pairs, loaded.lineage) == (1000.0, 154, 3080, LINEAGE)


def test_a_score_is_one_vector_product(readout: Readout) -> None:
    states = np.random.default_rng(1).standard_normal((3, 8))
    np.testing.assert_allclose(readout.score(states), [readout.vector @ state for state in states])


def test_a_readout_of_another_lineage_is_refused(readout: Readout, tmp_path: Path) -> None:
    readout.save(tmp_path / "r.safetensors")
    with pytest.raises(LineageMismatch, match="keep: 'stride 1/3' there, 'ink 1/3' here"):
        Readout.load(tmp_path / "r.safetensors", lineage=replace(LINEAGE, keep="ink 1/3"))


def test_a_missing_readout_lists_what_exists(readout: Readout, tmp_path: Path) -> None:
    readout.save(tmp_path / "finance.safetensors")
    with pytest.raises(ArtifactError, match=r"no such readout; there are \['finance.safetensors'\]"):
        Readout.load(tmp_path / "legal.safetensors")


def test_files_that_are_no_readouts_are_refused(tmp_path: Path) -> None:
    (tmp_path / "noise.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(ArtifactError, match="not a readable safetensors file"):
        Readout.load(tmp_path / "noise.safetensors")
    save_file({"readout": np.zeros(2)}, tmp_path / "other.safetensors", {"format": "something"})
    with pytest.raises(ArtifactError, match="format 'something', wanted 'ridgerank-readout-1'"):
        Readout.load(tmp_path / "other.safetensors")
