"""Whatever happens to the bytes of a calibration: it is read as it was written, or refused."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgerank.calibration.artifact import Calibration, calibration_path
from ridgerank.errors import RidgeRankError
from tests.calibrated_store import random_calibration
from tests.store.pages import LINEAGE

changes = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibrations")
    random_calibration(LINEAGE, 8).save(folder)
    return folder


@settings(max_examples=150, deadline=None)
@given(changes=changes, cut=st.floats(0, 2))
def test_a_changed_or_cut_calibration_is_refused_or_has_changed_nothing(
    changes: list[tuple[float, int]], cut: float, folder: Path
) -> None:
    whole = calibration_path(folder, "default").read_bytes()
    vector = Calibration.load(folder).readout.vector
    content = bytearray(whole[: round(cut * len(whole))] if cut < 1 else whole)
    for position, mask in changes:
        if content:
            content[int(position * len(content))] ^= mask
    calibration_path(folder, "fuzzed").write_bytes(content)
    try:
        loaded = Calibration.load(folder, "fuzzed")
    except RidgeRankError:
        return
    np.testing.assert_array_equal(loaded.readout.vector, vector)
