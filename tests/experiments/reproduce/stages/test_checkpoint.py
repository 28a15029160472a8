"""Stages go on where they stopped."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.reproduce.stages.checkpoint import Arrays, compute_in_parts, is_complete, require_lineage
from ridgerank.errors import LineageMismatch
from tests.store.pages import LINEAGE


class KilledError(Exception):
    """A kill."""


def test_a_killed_stage_goes_on_with_the_part_it_was_at(tmp_path: Path) -> None:
    computed: list[range] = []

    def make(items: range, *, until: int) -> Arrays:
        if items.start >= until:
            raise KilledError
        computed.append(items)
        return {"squares": np.array([item**2 for item in items])}

    with pytest.raises(KilledError):
        compute_in_parts(tmp_path, 10, 4, lambda items: make(items, until=8))
    assert not is_complete(tmp_path, 10, 4)
    arrays = compute_in_parts(tmp_path, 10, 4, lambda items: make(items, until=99))
    assert arrays["squares"].tolist() == [item**2 for item in range(10)]
    assert computed == [range(4), range(4, 8), range(8, 10)]
    assert is_complete(tmp_path, 10, 4)


def test_a_folder_of_another_model_is_refused(tmp_path: Path) -> None:
    require_lineage(tmp_path, LINEAGE)
    require_lineage(tmp_path, LINEAGE)
    with pytest.raises(LineageMismatch, match="another --work"):
        require_lineage(tmp_path, replace(LINEAGE, weights="427a"))
