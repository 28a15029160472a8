"""The calibration as a file: whole, versioned, bound to its lineage."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from ridgerank.calibration.artifact import Calibration, list_calibrations
from ridgerank.errors import ArtifactError, LineageMismatch
from tests.calibrated_store import random_calibration, random_target_readout
from tests.store.pages import LINEAGE


@pytest.fixture
def calibration() -> Calibration:
    return random_calibration(LINEAGE, 8)


def test_a_calibration_is_read_back_as_it_was(tmp_path: Path, calibration: Calibration) -> None:
    calibration.save(tmp_path)
    loaded = Calibration.load(tmp_path, lineage=LINEAGE)
    np.testing.assert_array_equal(loaded.readout.vector, calibration.readout.vector)
    assert loaded.readout.lineage == LINEAGE
    assert (loaded.retriever, loaded.retriever_source) == (
        calibration.retriever,
        calibration.retriever_source,
    )
    assert loaded.facts() == calibration.facts()
    assert repr(loaded.weight) == repr(calibration.weight)
    assert repr(loaded.diagnostics) == repr(calibration.diagnostics)
    assert math.isnan(loaded.diagnostics.agreement)


def test_the_readout_of_the_target_is_read_back_as_it_was(tmp_path: Path, calibration: Calibration) -> None:
    written = random_target_readout(8)
    replace(calibration, target_readout=written).save(tmp_path)
    loaded = Calibration.load(tmp_path, lineage=LINEAGE).target_readout
    assert loaded is not None
    np.testing.assert_array_equal(loaded.vector, written.vector)
    assert (loaded.intercept, loaded.penalty) == (written.intercept, written.penalty)
    calibration.save(tmp_path)
    assert Calibration.load(tmp_path).target_readout is None


def test_the_report_beside_it_is_json_without_nan(tmp_path: Path, calibration: Calibration) -> None:
    calibration.save(tmp_path, "mine")
    facts = json.loads((tmp_path / "mine.json").read_text(), parse_constant=pytest.fail)
    assert facts["name"] == "mine"
    assert facts["diagnostics"]["agreement"] is None


def test_several_names_live_side_by_side(tmp_path: Path, calibration: Calibration) -> None:
    for name in ("default", "bm25", "v1.2"):
        calibration.save(tmp_path, name)
    assert list_calibrations(tmp_path) == ["bm25", "default", "v1.2"]
    with pytest.raises(
        ArtifactError, match=r"no calibration called 'x'.*there: bm25, default, v1\.2; make one"
    ):
        Calibration.load(tmp_path, "x")


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b"])
def test_names_that_are_no_file_names_are_refused(
    tmp_path: Path, calibration: Calibration, name: str
) -> None:
    with pytest.raises(ArtifactError, match="wanted letters, digits"):
        calibration.save(tmp_path, name)


def test_another_lineage_is_refused(tmp_path: Path, calibration: Calibration) -> None:
    calibration.save(tmp_path)
    with pytest.raises(LineageMismatch, match="the calibration 'default' was made with another lineage"):
        Calibration.load(tmp_path, lineage=replace(LINEAGE, storage=replace(LINEAGE.storage, exit_layer=9)))


def test_damaged_files_and_other_formats_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ArtifactError, match="not a readable calibration"):
        Calibration.load(tmp_path, "bad")
    save_file({"readout": np.zeros(3)}, tmp_path / "other.safetensors", {"format": "ridgerank-calibration-0"})
    with pytest.raises(ArtifactError, match="format 'ridgerank-calibration-0', wanted"):
        Calibration.load(tmp_path, "other")
