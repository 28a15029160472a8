"""The calibration as a file: whole, versioned, bound to its lineage, and refused if a bit of it changed."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from ridgerank.calibration.artifact import (
    Calibration,
    calibration_path,
    find_damaged_calibrations,
    list_calibrations,
)
from ridgerank.errors import ArtifactError, LineageMismatch, RidgeRankError
from tests.calibrated_store import random_calibration, random_target_readout
from tests.store.pages import LINEAGE

changes = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=3)


@pytest.fixture
def calibration() -> Calibration:
    return random_calibration(LINEAGE, 8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibrations")
    replace(random_calibration(LINEAGE, 8), target_readout=random_target_readout(8)).save(folder)
    return folder


def test_a_calibration_is_read_back_as_it_was(tmp_path: Path, calibration: Calibration) -> None:
    whole = replace(calibration, target_readout=random_target_readout(8))
    whole.save(tmp_path)
    loaded = Calibration.load(tmp_path, lineage=LINEAGE)
    assert loaded.digest == whole.digest
    assert repr((loaded.weight, loaded.diagnostics)) == repr((whole.weight, whole.diagnostics))
    assert math.isnan(loaded.diagnostics.agreement)
    calibration.save(tmp_path)
    assert Calibration.load(tmp_path).target_readout is None
    facts = json.loads((tmp_path / "default.json").read_text(), parse_constant=pytest.fail)
    assert (facts["name"], facts["diagnostics"]["agreement"]) == ("default", None)


def test_several_names_live_side_by_side_if_they_are_file_names(
    tmp_path: Path, calibration: Calibration
) -> None:
    for name in ("default", "bm25", "v1.2"):
        calibration.save(tmp_path, name)
    assert list_calibrations(tmp_path) == ["bm25", "default", "v1.2"]
    with pytest.raises(
        ArtifactError, match=r"no calibration called 'x'.*there: bm25, default, v1\.2; make one"
    ):
        Calibration.load(tmp_path, "x")
    for name in ("", "../x", "a/b", ".hidden", "a b", "x" * 101):
        with pytest.raises(ArtifactError, match="expected at most 100 letters"):
            calibration.save(tmp_path, name)


def test_another_lineage_or_format_is_refused(tmp_path: Path, calibration: Calibration) -> None:
    calibration.save(tmp_path)
    with pytest.raises(LineageMismatch, match="the calibration 'default' was made with another lineage"):
        Calibration.load(tmp_path, lineage=replace(LINEAGE, storage=replace(LINEAGE.storage, exit_layer=9)))
    save_file({"readout": np.zeros(3)}, tmp_path / "other.safetensors", {"format": "ridgerank-calibration-0"})
    with pytest.raises(ArtifactError, match="format 'ridgerank-calibration-0', expected"):
        Calibration.load(tmp_path, "other")


@settings(max_examples=200, deadline=None)
@given(changes=changes, cut=st.floats(0, 2))
def test_a_changed_or_cut_file_is_refused_or_has_changed_nothing(
    changes: list[tuple[float, int]], cut: float, folder: Path
) -> None:
    whole = calibration_path(folder, "default").read_bytes()
    before = Calibration.load(folder)
    content = bytearray(whole[: round(cut * len(whole))] if cut < 1 else whole)
    for position, mask in changes:
        if content:
            content[int(position * len(content))] ^= mask
    calibration_path(folder, "fuzzed").write_bytes(content)
    try:
        loaded = Calibration.load(folder, "fuzzed")
    except RidgeRankError:
        return
    np.testing.assert_array_equal(loaded.readout.vector, before.readout.vector)
    assert loaded.facts() == before.facts()


def test_the_check_names_the_damaged_calibration(tmp_path: Path, calibration: Calibration) -> None:
    for name in ("good", "bad", "renamed"):
        calibration.save(tmp_path, name)
    assert list(find_damaged_calibrations(tmp_path)) == []
    bad, renamed = tmp_path / "bad.safetensors", tmp_path / "renamed.safetensors"
    content = bytearray(bad.read_bytes())
    content[-2] ^= 1
    bad.write_bytes(content)
    renamed.write_bytes(renamed.read_bytes().replace(b'"digest"', b'"dhgest"'))
    damaged = list(find_damaged_calibrations(tmp_path))
    assert [damage.what for damage in damaged] == ["calibration bad", "calibration renamed"]
    assert all("not as it was written" in damage.reason for damage in damaged)
