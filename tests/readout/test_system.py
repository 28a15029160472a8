import numpy as np
import pytest
from numpy.typing import DTypeLike

from ridgerank.readout.band import reflect
from ridgerank.readout.moments import Products, Rows
from ridgerank.readout.system import Dual, Primal, System

H = np.random.default_rng(0).standard_normal((300, 310))
t = np.random.default_rng(1).standard_normal(300)
TALL = np.ascontiguousarray(H.T)
SYSTEMS = [Dual(Rows(H, t)), Primal(Products(TALL.T @ TALL, t))]
"""Both have G = HH'."""


@pytest.mark.parametrize("system", SYSTEMS, ids=["dual", "primal"])
def test_the_image_of_the_readouts_is_the_product_with_the_matrix(system: System) -> None:
    x = np.random.default_rng(2).standard_normal((300, 3))
    np.testing.assert_allclose(system.image(system.readouts(x)), H @ (H.T @ x), atol=1e-9)
    np.testing.assert_array_equal(system.right, t)


@pytest.mark.parametrize("system", SYSTEMS, ids=["dual", "primal"])
def test_readouts_are_an_array_of_their_own(system: System) -> None:
    x = np.ones((300, 2), order="F")
    system.readouts(x)[...] = 0.0
    assert (x == 1.0).all()


@pytest.mark.parametrize(("precision", "tolerance"), [(np.float32, 1e-6), (np.float64, 1e-14)])
@pytest.mark.parametrize("system", SYSTEMS, ids=["dual", "primal"])
def test_the_matrix_is_turned_scaled_and_rounded(
    system: System, precision: DTypeLike, tolerance: float
) -> None:
    step, _ = reflect(np.random.default_rng(3).standard_normal((300, 5)), 0)
    Q = np.eye(300, order="F")
    step.turn_back(Q)
    lower = system.turned(step, 4.0, precision)
    wanted = Q.T @ (H @ H.T) @ Q / 4.0
    assert lower.dtype == precision
    np.testing.assert_allclose(np.tril(lower), np.tril(wanted), atol=tolerance * np.abs(wanted).max())
