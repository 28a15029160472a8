"""Weights measured, and how reliable they are."""

import numpy as np
import pytest

from experiments.protocols import GRID, WeightSweep
from experiments.reproduce.studies.weight_rules import Subset, measured_optima, split_half
from ridgerank.fusion.correlations import Correlations
from ridgerank.fusion.weight import optimal_weight
from ridgerank.ragged import Floats


def subset(c_b: Floats, c_s: Floats, rho: Floats, quality: Floats) -> Subset:
    correlations = Correlations(c_b, c_s, rho, 0)
    speaking = np.ones(len(c_b), dtype=np.bool_)
    return Subset(0, "one", "retriever", "arm", (correlations,), (speaking,), (WeightSweep(GRID, quality),))


def peaked(weight: float, queries: int) -> Floats:
    """Quality that is highest at one weight, for every query alike."""
    return np.repeat(90.0 - 100.0 * (GRID - weight)[:, None] ** 2, queries, axis=1)


def test_the_measured_weight_of_all_queries_is_the_sweep_s_optimum() -> None:
    sweep = WeightSweep(GRID, np.random.default_rng(0).uniform(40, 60, size=(21, 30)))
    assert measured_optima(sweep, np.full((1, 30), 1 / 30))[0] == pytest.approx(sweep.optimum)


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
