"""The path against the singular value decomposition, for spectra that float32 cannot hold."""

import numpy as np
import pytest
from numpy.typing import DTypeLike

from ridgerank.errors import CalibrationError
from ridgerank.ragged import Floats
from ridgerank.readout import refine
from ridgerank.readout.band import reflect
from ridgerank.readout.moments import Products, Rows
from ridgerank.readout.refine import SETTLED, make_solver, solve_path
from ridgerank.readout.ridge import PENALTIES
from ridgerank.readout.system import Dual, Primal

ROWS, DIM = 260, 300
EVEN = np.ones(ROWS)
HUGE = np.concatenate([np.logspace(4, 3, 5), np.ones(ROWS - 5)])
FALLING = np.logspace(2, -4, ROWS)
SPECTRA = {
    "even": EVEN,
    "huge directions": HUGE,
    "power law": 1e3 / np.arange(1.0, ROWS + 1),
    "falling": FALLING,
}


def rows(lengths: Floats, *, seed: int = 0) -> Rows:
    """Contrasts with singular values near `lengths` times √dim."""
    generator = np.random.default_rng(seed)
    left, values, right = np.linalg.svd(generator.standard_normal((ROWS, DIM)), full_matrices=False)
    return Rows((left * (values * lengths)) @ right, generator.standard_normal(ROWS))


def exact(H: Floats, t: Floats, penalties: Floats) -> Floats:
    """Σ s / (s² + λ) · v (u't): the ridge solution without ever forming a product, (dim, penalties)."""
    U, s, Vt = np.linalg.svd(H, full_matrices=False)
    filtered: Floats = Vt.T @ ((s * (U.T @ t))[:, None] / (s[:, None] ** 2 + penalties))
    return filtered


def relative_errors(found: Floats, wanted: Floats) -> Floats:
    errors: Floats = np.linalg.norm(found - wanted, axis=0) / np.linalg.norm(wanted, axis=0)
    return errors


@pytest.fixture
def precisions(monkeypatch: pytest.MonkeyPatch) -> list[DTypeLike]:
    """The precisions in which a solver was made, in order."""
    made: list[DTypeLike] = []

    def spied(*arguments: object) -> refine.Solver:
        made.append(arguments[-1])  # type: ignore[arg-type]
        return make_solver(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(refine, "make_solver", spied)
    return made


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_every_penalty_is_right_to_nine_digits(spectrum: str) -> None:
    problem = rows(SPECTRA[spectrum])
    path = solve_path(Dual(problem), PENALTIES)
    assert relative_errors(path, exact(problem.states, problem.targets, PENALTIES)).max() < 1e-9


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_products_give_what_a_dense_float64_solve_gives(spectrum: str) -> None:
    H = rows(SPECTRA[spectrum]).states.T  # tall
    gram, moment = H.T @ H, H.T @ np.random.default_rng(1).standard_normal(DIM)
    path = solve_path(Primal(Products(gram, moment)), PENALTIES)
    largest = np.linalg.eigvalsh(gram)
    for readout, penalty in zip(path.T, PENALTIES, strict=True):
        dense = np.linalg.solve(gram + penalty * np.eye(ROWS), moment)
        # Products are rounded: no solve knows more digits than their condition leaves.
        condition = (largest[-1] + penalty) / (max(largest[0], 0.0) + penalty)
        assert np.linalg.norm(readout - dense) <= max(1e-9, 1e-15 * condition) * np.linalg.norm(dense)


@pytest.mark.parametrize("spectrum", ["even", "huge directions", "power law"])
def test_a_few_huge_directions_do_not_need_float64(spectrum: str, precisions: list[DTypeLike]) -> None:
    solve_path(Dual(rows(SPECTRA[spectrum])), PENALTIES)
    assert precisions == [np.float32]


def test_a_spectrum_that_float32_cannot_hold_is_solved_again_in_float64(precisions: list[DTypeLike]) -> None:
    problem = rows(FALLING)
    path = solve_path(Dual(problem), PENALTIES)
    assert precisions == [np.float32, np.float64]
    assert relative_errors(path, exact(problem.states, problem.targets, PENALTIES)).max() < 1e-9


def test_without_leading_directions_float32_drowns_in_the_huge_ones() -> None:
    system = Dual(rows(HUGE))
    still, _ = reflect(np.zeros((ROWS, 1)), 0)
    _, errors = refine.refine(system, make_solver(system, still, 1e8, PENALTIES, np.float32), PENALTIES)
    assert (errors > SETTLED).any()


@pytest.mark.parametrize("unit", [1e-25, 1e25])
def test_the_unit_of_states_does_not_matter(unit: float, precisions: list[DTypeLike]) -> None:
    problem = rows(EVEN)
    path = solve_path(Dual(problem), PENALTIES)
    other = solve_path(Dual(Rows(unit * problem.states, problem.targets)), unit * unit * PENALTIES)
    np.testing.assert_allclose(unit * other, path, rtol=1e-10, atol=1e-14)
    assert precisions == [np.float32, np.float32]


@pytest.mark.parametrize("penalty", [1e-280, 1e280])
def test_a_penalty_beyond_the_range_of_float32_is_no_trouble(penalty: float) -> None:
    problem = rows(EVEN)
    path = solve_path(Dual(problem), np.array([penalty]))
    wanted = exact(problem.states, problem.targets, np.array([penalty]))
    np.testing.assert_allclose(path, wanted, rtol=1e-8, atol=1e-12 * np.abs(wanted).max())


def test_states_that_are_all_alike_have_a_readout_of_zeros() -> None:
    assert not solve_path(Dual(Rows(np.zeros((7, 9)), np.arange(7.0))), PENALTIES).any()
    assert not solve_path(Primal(Products(np.eye(4), np.zeros(4))), PENALTIES).any()


def test_a_penalty_too_small_even_for_float64_is_refused() -> None:
    gram = np.array([[1.0, 1.0], [1.0, 1.0 - 1e-12]])  # indefinite, as rounding leaves it
    with pytest.raises(CalibrationError, match="not positive definite at penalty 1e-20"):
        solve_path(Primal(Products(gram, np.ones(2))), np.array([1e-20, 1.0]))
