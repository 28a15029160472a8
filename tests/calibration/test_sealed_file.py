"""A changed bit in a calibration is an error, never another score and never a traceback."""

from dataclasses import replace
from pathlib import Path

import pytest

from ridgerank.calibration.artifact import Calibration, find_damaged_calibrations
from ridgerank.errors import ArtifactError
from tests.calibrated_store import random_calibration, random_target_readout
from tests.store.pages import LINEAGE


def flip(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_every_changed_bit_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    calibration = replace(random_calibration(LINEAGE, 8), target_readout=random_target_readout(8))
    path = calibration.save(tmp_path)
    content = path.read_bytes()
    refused = 0
    for bit in range(0, 8 * len(content), 11):
        path.write_bytes(flip(content, bit))
        try:
            loaded = Calibration.load(tmp_path)
        except ArtifactError:
            refused += 1
        else:
            assert (loaded.readout.vector == calibration.readout.vector).all()
            assert loaded.facts() == calibration.facts()
    assert refused > 0.95 * len(range(0, 8 * len(content), 11))


def test_the_check_names_the_damaged_calibration(tmp_path: Path) -> None:
    for name in ("good", "bad"):
        random_calibration(LINEAGE, 8).save(tmp_path, name)
    assert list(find_damaged_calibrations(tmp_path)) == []
    path = tmp_path / "bad.safetensors"
    path.write_bytes(flip(path.read_bytes(), 8 * path.stat().st_size - 9))
    [damage] = find_damaged_calibrations(tmp_path)
    assert damage.what == "calibration bad"
    assert "not as it was written" in damage.reason


def test_metadata_of_an_unknown_name_is_refused(tmp_path: Path) -> None:
    path = random_calibration(LINEAGE, 8).save(tmp_path)
    path.write_bytes(path.read_bytes().replace(b'"digest"', b'"dhgest"'))
    with pytest.raises(ArtifactError, match="not as it was written"):
        Calibration.load(tmp_path)
