import numpy as np
import pytest
from sklearn.linear_model import Ridge

from ridgerank.errors import CalibrationError
from ridgerank.ragged import Floats
from ridgerank.readout import PENALTIES, CenteredMoments, ridge_path, solve_path
from tests.readout.test_moments import gathered, random_lists, stacked

ROWS, DIM = 260, 300
EVEN = np.ones(ROWS)
SPECTRA = {
    "even": EVEN,
    "huge directions": np.concatenate([np.logspace(4, 3, 5), np.ones(ROWS - 5)]),
    "power law": 1e3 / np.arange(1.0, ROWS + 1),
    "falling": np.logspace(2, -4, ROWS),
    "rank 40": np.concatenate([np.ones(40), np.zeros(ROWS - 40)]),
}
"""How long states are in each direction; eigenvalues go as the squares."""


def contrasts(lengths: Floats) -> tuple[Floats, Floats]:
    """Contrasts with singular values near `lengths` times √dim, and targets."""
    generator = np.random.default_rng(0)
    left, values, right = np.linalg.svd(generator.standard_normal((ROWS, DIM)), full_matrices=False)
    return (left * (values * lengths)) @ right, generator.standard_normal(ROWS)


def solve_rows(H: Floats, t: Floats, penalties: Floats = PENALTIES) -> Floats:
    return solve_path(H @ H.T, t, penalties, lambda x: (x @ H) @ H.T) @ H


def solve_products(gram: Floats, moment: Floats, penalties: Floats = PENALTIES) -> Floats:
    return solve_path(gram, moment, penalties, lambda x: x @ gram)


@pytest.mark.parametrize(("lists", "dim"), [(3, 40), (60, 12), (40, 130), (120, 260), (20, 1)])
def test_primal_dual_and_scikit_learn_agree_on_centered_data(lists: int, dim: int) -> None:
    data = random_lists(lists, seed=dim, dim=dim)
    H, t = stacked(data)
    path = ridge_path(gathered(data, dim))
    for row, penalty in zip(path, PENALTIES, strict=True):
        primal = np.linalg.solve(H.T @ H + penalty * np.eye(dim), H.T @ t)
        dual = H.T @ np.linalg.solve(H @ H.T + penalty * np.eye(len(t)), t)
        peer = Ridge(alpha=penalty, fit_intercept=False, solver="svd").fit(H, t).coef_
        for other in (primal, dual):
            np.testing.assert_allclose(row, other, rtol=1e-6, atol=1e-8)
        assert np.linalg.norm(row - peer) < 1e-8 * np.linalg.norm(peer)


def test_targets_that_are_constant_in_every_list_teach_nothing() -> None:
    moments = CenteredMoments(3)
    states: Floats = np.random.default_rng(0).standard_normal((5, 3))
    moments.add(states, np.full(5, 0.1))
    with pytest.raises(CalibrationError, match="constant within their list"):
        ridge_path(moments)


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_every_penalty_is_right_to_eight_digits(spectrum: str) -> None:
    """Against the ridge solution without ever forming a product: Σ s / (s² + λ) · v (u't)."""
    H, t = contrasts(SPECTRA[spectrum])
    U, s, Vt = np.linalg.svd(H, full_matrices=False)
    exact = (s * (U.T @ t) / (s**2 + PENALTIES[:, None])) @ Vt
    errors = np.linalg.norm(solve_rows(H, t) - exact, axis=1) / np.linalg.norm(exact, axis=1)
    assert errors.max() < 1e-8


@pytest.mark.parametrize("penalty", [1e-280, 1e-14, 1e-10, 1e-6])
def test_without_full_rank_a_small_penalty_is_least_squares_of_least_norm(penalty: float) -> None:
    H, t = contrasts(SPECTRA["rank 40"])
    expected = np.linalg.lstsq(H, t, rcond=1e-10)[0]
    lambdas = np.array([penalty])
    for [readout] in (solve_rows(H, t, lambdas), solve_products(H.T @ H, H.T @ t, lambdas)):
        np.testing.assert_allclose(readout, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_states_that_are_all_alike_have_a_readout_of_zeros() -> None:
    assert not solve_rows(np.zeros((7, 9)), np.arange(7.0)).any()
