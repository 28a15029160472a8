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


def test_noise_is_not_significant_and_its_interval_holds_zero() -> None:
    noise = np.random.default_rng(1).normal(size=100)
    comparison = compare_differences([noise - noise.mean() + 0.01], seed=0)
    assert comparison.p_value > 0.5
    assert comparison.low < 0 < comparison.high


def test_arms_that_rank_alike_do_not_differ() -> None:
    comparison = compare_differences([np.zeros(5), np.zeros(7)], seed=0)
    assert (comparison.difference, comparison.low, comparison.high, comparison.p_value) == (
        0.0,
        0.0,
        0.0,
        1.0,
    )


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    chance = np.random.default_rng(2)
    covered = 0
    for _ in range(60):
        comparison = compare_differences([chance.normal(1.0, 5.0, size=50)], seed=0)
        covered += comparison.low <= 1.0 <= comparison.high
    assert covered >= 50
