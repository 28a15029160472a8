import numpy as np
import pytest
from sklearn.linear_model import Ridge

from ridgerank.errors import CalibrationError
from ridgerank.ragged import Floats
from ridgerank.readout.moments import CenteredMoments, Problem, Products, Rows
from ridgerank.readout.ridge import PENALTIES, ridge_path
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


def contrasts(lengths: Floats) -> Rows:
    """Contrasts with singular values near `lengths` times √dim."""
    generator = np.random.default_rng(0)
    left, values, right = np.linalg.svd(generator.standard_normal((ROWS, DIM)), full_matrices=False)
    return Rows((left * (values * lengths)) @ right, generator.standard_normal(ROWS))


def solve(problem: Problem, penalties: Floats = PENALTIES) -> Floats:
    """The path of a problem that was not gathered from lists."""
    moments = CenteredMoments(DIM)
    moments.target_square = 1.0
    moments.problem = lambda: problem  # type: ignore[method-assign]
    return ridge_path(moments, penalties)


def exact_path(rows: Rows, penalties: Floats = PENALTIES) -> Floats:
    """Σ s / (s² + λ) · v (u't): the ridge solution without ever forming a product, (penalties, dim)."""
    U, s, Vt = np.linalg.svd(rows.states, full_matrices=False)
    filtered: Floats = (s * (U.T @ rows.targets) / (s**2 + penalties[:, None])) @ Vt
    return filtered


def relative_errors(path: Floats, expected: Floats) -> Floats:
    errors: Floats = np.linalg.norm(path - expected, axis=1) / np.linalg.norm(expected, axis=1)
    return errors


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


@pytest.mark.parametrize("penalties", [[], [0.0], [-1.0], [np.inf], [np.nan]])
def test_penalties_must_be_positive(penalties: list[float]) -> None:
    with pytest.raises(CalibrationError, match="all positive"):
        ridge_path(gathered(random_lists(9)), np.array(penalties))


def test_targets_that_are_constant_in_every_list_teach_nothing() -> None:
    moments = CenteredMoments(3)
    states: Floats = np.random.default_rng(0).standard_normal((5, 3))
    moments.add(states, np.full(5, 0.1))
    with pytest.raises(CalibrationError, match="constant within their list"):
        ridge_path(moments)


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_every_penalty_is_right_to_eight_digits(spectrum: str) -> None:
    rows = contrasts(SPECTRA[spectrum])
    assert relative_errors(solve(rows), exact_path(rows)).max() < 1e-8


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_products_give_what_a_dense_float64_solve_gives(spectrum: str) -> None:
    H = contrasts(SPECTRA[spectrum]).states.T  # tall
    gram, moment = H.T @ H, H.T @ np.random.default_rng(1).standard_normal(DIM)
    eigenvalues = np.linalg.eigvalsh(gram)
    for readout, penalty in zip(solve(Products(gram, moment)), PENALTIES, strict=True):
        dense = np.linalg.solve(gram + penalty * np.eye(ROWS), moment)
        # Products are rounded: no solve knows more digits than their condition leaves.
        condition = (eigenvalues[-1] + penalty) / (max(eigenvalues[0], 0.0) + penalty)
        assert np.linalg.norm(readout - dense) <= max(1e-9, 1e-15 * condition) * np.linalg.norm(dense)


@pytest.mark.parametrize("penalty", [1e-280, 1e-30, 1e-14, 1e-10, 1e-8, 1e-6])
def test_without_full_rank_a_small_penalty_is_least_squares_of_least_norm(penalty: float) -> None:
    rows = contrasts(SPECTRA["rank 40"])
    expected = np.linalg.lstsq(rows.states, rows.targets, rcond=1e-10)[0]
    products = Products(rows.states.T @ rows.states, rows.states.T @ rows.targets)
    for problem in (rows, products):
        [readout] = solve(problem, np.array([penalty]))
        np.testing.assert_allclose(readout, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_states_that_are_all_alike_have_a_readout_of_zeros() -> None:
    assert not solve(Rows(np.zeros((7, 9)), np.arange(7.0))).any()
    assert not solve(Products(np.eye(4), np.zeros(4))).any()
