import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import DTypeLike
from scipy.linalg import lapack

from ridgerank.ragged import Floats
from ridgerank.readout.band import Band, reduce_to_band, reflect, turn_matrix


def dense(band: Band) -> Floats:
    """B in full."""
    n = band.diagonals.shape[1]
    lower = sum(
        np.diag(values[: n - below], -below) for below, values in enumerate(band.diagonals) if below < n
    )
    full: Floats = lower + np.tril(lower, -1).T
    return full


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(2, 9), st.integers(0, 1000))
def test_a_band_solves_like_the_full_matrix(size: int, width: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    factor = generator.standard_normal((size, generator.integers(1, size + 1)))
    G, right = factor @ factor.T, generator.standard_normal((size, 1))
    band = reduce_to_band(G, width=width)
    for penalty in (0.1, 10.0):
        column = right.copy(order="F")
        band.turn(column)
        column, _ = lapack.dpbtrs(band.factor(penalty), column, lower=1)
        band.turn_back(column)
        expected = np.linalg.solve(G + penalty * np.eye(size), right)
        np.testing.assert_allclose(column, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("precision", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-13)])
def test_turning_the_band_back_gives_the_matrix_to_its_precision(
    precision: DTypeLike, tolerance: float
) -> None:
    factor = np.random.default_rng(0).standard_normal((60, 60))
    G = (factor @ factor.T).astype(precision)
    band = reduce_to_band(G, width=7)
    Q = np.eye(60, dtype=precision, order="F")
    band.turn_back(Q)
    assert Q.dtype == precision
    np.testing.assert_allclose(Q @ dense(band) @ Q.T, G, atol=tolerance * np.abs(G).max())


def test_turning_and_turning_back_change_nothing() -> None:
    generator = np.random.default_rng(1)
    step, _ = reflect(generator.standard_normal((20, 4)), 3)
    columns = generator.standard_normal((23, 2))
    turned = columns.copy(order="F")
    step.turn(turned)
    assert not np.allclose(turned[3:], columns[3:])
    step.turn_back(turned)
    np.testing.assert_allclose(turned, columns, atol=1e-14)


def test_turning_a_matrix_turns_both_its_sides() -> None:
    generator = np.random.default_rng(2)
    step, _ = reflect(generator.standard_normal((20, 4)), 0)
    factor = generator.standard_normal((20, 20))
    G = factor @ factor.T
    Q = np.eye(20, order="F")
    step.turn_back(Q)
    turned = np.array(G, order="F")
    turn_matrix(turned, step)
    np.testing.assert_allclose(np.tril(turned), np.tril(Q.T @ G @ Q), atol=1e-12)


def test_a_penalty_below_the_least_eigenvalue_has_no_factor() -> None:
    assert reduce_to_band(-np.eye(5), width=2).factor(0.5) is None
    assert reduce_to_band(-np.eye(5), width=2).factor(1.5) is not None


def test_reducing_leaves_the_matrix_untouched() -> None:
    factor = np.random.default_rng(0).standard_normal((300, 300))
    G = factor @ factor.T
    before = G.copy()
    reduce_to_band(G)
    np.testing.assert_array_equal(G, before)
