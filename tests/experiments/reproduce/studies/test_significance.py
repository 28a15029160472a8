"""Paired tests say what differences say."""

import numpy as np
import pytest

from experiments.reproduce.studies.significance import compare_differences


def test_the_difference_is_the_mean_over_corpora_not_over_queries() -> None:
    comparison = compare_differences([np.array([10.0, 10.0, 10.0, 10.0]), np.array([0.0, 2.0])], seed=0)
    assert comparison.difference == pytest.approx((10.0 + 1.0) / 2)
    assert comparison.queries == 6


def test_a_clear_gain_is_significant_and_its_interval_is_above_zero() -> None:
    chance = np.random.default_rng(0)
    comparison = compare_differences(
        [chance.normal(3.0, 4.0, size=80), chance.normal(3.0, 4.0, size=60)], seed=0
    )
    assert comparison.p_value < 0.001
    assert 0 < comparison.low < comparison.difference < comparison.high
