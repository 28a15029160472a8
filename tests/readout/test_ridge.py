import numpy as np
import pytest
from sklearn.linear_model import Ridge

from ridgerank.errors import CalibrationError
from ridgerank.ragged import Floats
from ridgerank.readout.moments import CenteredMoments
from ridgerank.readout.ridge import PENALTIES, ridge_path
from tests.readout.test_moments import gathered, random_lists, stacked


@pytest.mark.parametrize(("lists", "dim"), [(3, 40), (60, 12), (40, 130), (120, 260), (20, 1)])
def test_primal_dual_and_scikit_learn_agree_on_centered_data(lists: int, dim: int) -> None:
    data = random_lists(lists, seed=dim, dim=dim)
    H, t = stacked(data)
    path = ridge_path(gathered(data, dim))
    for row, penalty in zip(path, PENALTIES, strict=True):
        primal = np.linalg.solve(H.T @ H + penalty * np.eye(dim), H.T @ t)
        dual = H.T @ np.linalg.solve(H @ H.T + penalty * np.eye(len(t)), t)
        peer = Ridge(alpha=penalty, fit_intercept=False, solver="svd").fit(H, t).coef_
        for other in (primal, dual, peer):
            np.testing.assert_allclose(row, other, rtol=1e-6, atol=1e-8)


def test_the_path_equals_separate_solves() -> None:
    moments = gathered(random_lists(60, seed=1))
    path = ridge_path(moments)
    for row, penalty in zip(path, PENALTIES, strict=True):
        np.testing.assert_allclose(row, ridge_path(moments, np.array([penalty]))[0], rtol=1e-10, atol=1e-14)


def test_a_vanishing_penalty_is_least_squares_and_a_huge_one_is_zero() -> None:
    data = random_lists(60, seed=2)
    H, t = stacked(data)
    small, huge = ridge_path(gathered(data), np.array([1e-10, 1e14]))
    np.testing.assert_allclose(small, np.linalg.lstsq(H, t, rcond=None)[0], rtol=1e-6)
    assert np.abs(huge).max() < 1e-11
    np.testing.assert_allclose(huge * 1e14, H.T @ t, rtol=1e-6)


def test_a_vanishing_penalty_maximizes_correlation_with_the_target() -> None:
    data = random_lists(60, seed=3)
    H, t = stacked(data)
    best = np.corrcoef(H @ ridge_path(gathered(data), np.array([1e-10]))[0], t)[0, 1]
    others = np.random.default_rng(0).standard_normal((200, H.shape[1]))
    assert all(abs(np.corrcoef(H @ other, t)[0, 1]) <= best for other in others)


def test_repeating_every_list_halves_the_penalty() -> None:
    data = random_lists(30, seed=4)
    np.testing.assert_allclose(
        ridge_path(gathered(data + data), 2 * PENALTIES), ridge_path(gathered(data)), rtol=1e-8, atol=1e-12
    )


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
