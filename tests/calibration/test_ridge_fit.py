"""The fit: held-out scores are held out, the readout is the ridge solution, too few lists are refused."""

from dataclasses import replace

import numpy as np
import pytest

from ridgerank.calibration.ridge_fit import RidgeProblem, fit, usable
from ridgerank.errors import CalibrationError
from ridgerank.ragged import Ragged
from ridgerank.readout.ridge import PENALTIES


def lessons(
    lists: int = 24, *, noise: float = 0.5, corpora: tuple[str, ...] = (), dim: int = 12
) -> RidgeProblem:
    generator = np.random.default_rng(1)
    sizes = generator.integers(5, 12, lists)
    states = generator.normal(size=(int(sizes.sum()), dim))
    truth = generator.normal(size=dim)
    return RidgeProblem(
        lists=Ragged.of_lengths(sizes.tolist()),
        corpora=corpora or ("",) * lists,
        retriever=generator.normal(size=len(states)),
        teacher=states @ truth + noise * generator.normal(size=len(states)),
        states=states,
    )


def test_the_readout_solves_the_centered_ridge_problem() -> None:
    given = lessons()
    found = fit(given)
    H, t = given.lists.center(np.asarray(given.states)), given.lists.center(given.teacher)
    wanted = np.linalg.solve(H.T @ H + found.choice.deployed * np.eye(12), H.T @ t)
    np.testing.assert_allclose(found.vector, wanted, rtol=1e-9)
    assert found.choice.deployed in PENALTIES
    assert found.agreement.mean() > 0.9


def test_a_lists_own_margins_never_reach_its_held_out_scores() -> None:
    given = lessons()
    before = fit(given)
    teacher = given.teacher.copy()
    mine = given.lists.repeat(np.arange(24) % 4 == 0)  # one whole part
    teacher[mine] = np.random.default_rng(9).normal(size=int(mine.sum())) * 100
    after = fit(replace(given, teacher=teacher))
    np.testing.assert_array_equal(after.held_out[mine], before.held_out[mine])
    assert not np.array_equal(after.held_out[~mine], before.held_out[~mine])


def test_corpora_are_the_folds_where_three_are_named() -> None:
    named = fit(lessons(corpora=("a", "b", "c") * 8))
    assert set(named.choice.chosen) == {"a", "b", "c"}
    assert set(fit(lessons(corpora=("a", "b") * 12)).choice.chosen) == {f"part {n}" for n in range(1, 5)}
    assert len(fit(lessons(40)).choice.chosen) == 8


def test_fewer_than_sixteen_lists_are_refused() -> None:
    assert len(fit(lessons(16)).agreement) == 16
    with pytest.raises(
        CalibrationError, match="15 queries whose candidates the full model tells apart, wanted"
    ):
        fit(lessons(15))


def test_lists_the_teacher_cannot_tell_apart_are_not_usable() -> None:
    given = lessons()
    teacher = given.teacher.copy()
    teacher[: given.lists.offsets[1]] = 4.0
    assert usable(replace(given, teacher=teacher)).tolist() == [False] + [True] * 23
