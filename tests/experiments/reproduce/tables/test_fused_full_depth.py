"""An optimum at w = 1 is one also where a smaller weight is as good."""

import numpy as np
import pytest

from experiments.protocols.weight_sweep import WeightSweep
from experiments.reproduce.tables.fused_full_depth import is_best_at_one, is_tied_at_one


@pytest.mark.parametrize(
    ("quality", "best", "tied"),
    [
        ((80.0, 90.0, 91.0), True, False),
        ((80.0, 91.0, 91.0), True, True),
        ((80.0, 91.0, 91.0 - 1e-12), True, True),
        ((80.0, 91.0, 90.9), False, False),
    ],
)
def test_an_optimum_that_is_attained_at_one_counts(
    quality: tuple[float, ...], best: bool, tied: bool
) -> None:
    sweep = WeightSweep(np.array([0.0, 0.5, 1.0]), np.array(quality)[:, None])
    assert (is_best_at_one(sweep), is_tied_at_one(sweep)) == (best, tied)
