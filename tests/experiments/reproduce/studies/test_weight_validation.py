"""Weights measured, and how reliable they are."""

import numpy as np
import pytest

from experiments.protocols.weight_sweep import GRID, WeightSweep
from experiments.reproduce.studies.weight_validation import (
    Subset,
    measured_optima,
    spearman_brown,
    split_half,
)
from ridgerank.fusion.correlations import Correlations
from ridgerank.fusion.weight import optimal_weight
from ridgerank.ragged import Floats


def subset(c_b: Floats, c_s: Floats, rho: Floats, quality: Floats) -> Subset:
    correlations = Correlations(c_b, c_s, rho, 0, 0, 0)
    speaking = np.ones(len(c_b), dtype=np.bool_)
    return Subset(0, "one", "retriever", "arm", (correlations,), (speaking,), (WeightSweep(GRID, quality),))


def peaked(weight: float, queries: int) -> Floats:
    """Quality that is highest at one weight, for every query alike."""
    return np.repeat(90.0 - 100.0 * (GRID - weight)[:, None] ** 2, queries, axis=1)


def test_spearman_brown_by_hand() -> None:
    assert spearman_brown(0.5) == pytest.approx(2 / 3)
    assert spearman_brown(1.0) == 1.0
    assert spearman_brown(0.0) == 0.0


def test_the_measured_weight_of_all_queries_is_the_sweep_s_optimum() -> None:
    sweep = WeightSweep(GRID, np.random.default_rng(0).uniform(40, 60, size=(21, 30)))
    assert measured_optima(sweep, np.full((1, 30), 1 / 30))[0] == pytest.approx(sweep.optimum)


def test_the_measured_weight_is_the_mean_of_those_within_a_point() -> None:
    # At 0.7 the quality is 90; at 0.6 and 0.8 exactly one point less, at 0.65 and 0.75 a quarter.
    assert measured_optima(WeightSweep(GRID, peaked(0.7, 4)), np.full((1, 4), 0.25))[0] == pytest.approx(
        0.7, abs=0.026
    )


def test_the_predicted_weight_is_read_from_mean_correlations() -> None:
    c_b, c_s, rho = np.array([0.2, 0.4]), np.array([0.5, 0.7]), np.array([0.1, 0.3])
    of_readout = subset(c_b, c_s, rho, peaked(0.8, 2))
    assert of_readout.predicted == pytest.approx(
        float(optimal_weight(np.array(0.3), np.array(0.6), np.array(0.2)))
    )
    assert of_readout.least_partial == pytest.approx(min(0.3 - 0.2 * 0.6, 0.6 - 0.2 * 0.3))


def test_halves_that_agree_are_perfectly_reliable_and_halves_of_noise_are_not() -> None:
    chance = np.random.default_rng(0)
    steady, noisy = [], []
    for weight in np.linspace(0.3, 0.9, 12):
        c_s = np.full(40, weight)
        steady.append(subset(np.full(40, 0.3), c_s, np.full(40, 0.1), peaked(float(weight), 40)))
        loud = chance.uniform(0.1, 0.9, size=(3, 40))
        noisy.append(subset(loud[0], loud[1], 0.1 * loud[2], chance.uniform(0, 100, size=(21, 40))))
    assert split_half(tuple(steady), 5, 0) == pytest.approx((1.0, 1.0))
    predicted, measured = split_half(tuple(noisy), 20, 0)
    assert predicted < 0.6
    assert measured < 0.6


def test_the_interval_of_a_weight_holds_it() -> None:
    chance = np.random.default_rng(1)
    quality = peaked(0.6, 50) + chance.normal(0, 8, size=(21, 50))
    of_readout = subset(np.full(50, 0.3), np.full(50, 0.5), np.full(50, 0.2), quality)
    low, high = of_readout.interval(seed=0)
    assert low <= of_readout.measured <= high
    assert 0.02 < high - low < 0.6


def test_queries_that_do_not_speak_are_in_no_half() -> None:
    c_b, c_s, rho = np.full(3, 0.3), np.array([0.5, 0.6, 0.7]), np.full(3, 0.1)
    speaking = np.array([True, False, True, True, False, False])
    of_readout = Subset(
        0, "one", "r", "arm", (Correlations(c_b, c_s, rho, 0, 0, 3),), (speaking,),
        (WeightSweep(GRID, peaked(0.5, 6)),),
    )  # fmt: skip
    first = np.array([1.0, 1.0, 0.0, 1.0, 0.0, 0.0])
    expected = optimal_weight(
        np.array(0.3), np.array(0.6), np.array(0.1)
    )  # c_s of the first and third: 0.5, 0.7
    assert of_readout._predicted_on(first) == pytest.approx(float(expected))
