import math

import numpy as np
import pytest
from PIL import Image

from ridgerank.backbones.base import Backbone, cells
from ridgerank.backbones.vision import tiled
from tests.backbones.small_models import FAMILIES


@pytest.mark.parametrize("longer", range(1, 9))
def test_tiles_are_laid_out_as_the_processor_cut_them(longer: int) -> None:
    """The processor cuts the longer side into a fixed number and the other into as many as it needs."""
    for shorter_side in np.linspace(0.05, 1, 97):
        shorter = math.ceil(longer * shorter_side)
        for rows, columns, aspect in ((longer, shorter, shorter_side), (shorter, longer, 1 / shorter_side)):
            side = 2
            found = tiled(((rows * columns + 1) * side, side), aspect)
            expected = cells(rows * side, columns * side).reshape(rows, side, columns, side, 4)
            np.testing.assert_allclose(found[: -(side**2)], expected.swapaxes(1, 2).reshape(-1, 4))
            np.testing.assert_allclose(found[-(side**2) :], cells(side, side))


@pytest.mark.parametrize("built", FAMILIES, indirect=True)
@pytest.mark.parametrize("size", [(120, 160), (200, 90), (60, 60)])
def test_every_visual_position_of_every_family_has_a_region_within_the_page(
    backbone: Backbone, size: tuple[int, int]
) -> None:
    [prefix] = backbone.encode([Image.new("RGB", size, "white")], exit_layer=1)
    found = backbone.regions(prefix.grid, size[0] / size[1])
    assert found.shape == (int(prefix.visual.sum()), 4)
    assert found.min() == 0
    assert found.max() == pytest.approx(1)
    assert (found[:, :2] < found[:, 2:]).all()
