"""The fit: held-out scores are held out, the readout is the ridge solution, too few lists are refused."""

from dataclasses import replace

import numpy as np
import pytest

from ridgerank.calibration.ridge_fit import (
    RidgeProblem,
    assign_folds,
    find_varied_lists,
    fit_readout,
    sum_by_fold,
)
from ridgerank.errors import CalibrationError
from ridgerank.ragged import Ragged
from ridgerank.readout.ridge import PENALTIES, choose_penalty, choose_penalty_of_few


def ridge_problem(
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
        targets=states @ truth + noise * generator.normal(size=len(states)),
        states=states,
    )


def test_the_readout_solves_the_centered_ridge_problem() -> None:
    problem = ridge_problem()
    fit = fit_readout(problem)
    H, t = problem.lists.center(np.asarray(problem.states)), problem.lists.center(problem.targets)
    expected = np.linalg.solve(H.T @ H + fit.penalty.deployed * np.eye(12), H.T @ t)
    np.testing.assert_allclose(fit.vector, expected, rtol=1e-9)
    assert fit.penalty.deployed in PENALTIES
    assert fit.agreement.mean() > 0.9


def test_a_lists_own_margins_never_reach_its_held_out_scores() -> None:
    problem = ridge_problem()
    before = fit_readout(problem)
    targets = problem.targets.copy()
    members = problem.lists.repeat(np.arange(24) % 4 == 0)  # one whole part
    targets[members] = np.random.default_rng(9).normal(size=int(members.sum())) * 100
    after = fit_readout(replace(problem, targets=targets))
    np.testing.assert_array_equal(after.held_out_scores[members], before.held_out_scores[members])
    assert not np.array_equal(after.held_out_scores[~members], before.held_out_scores[~members])


def test_corpora_are_the_folds_where_three_are_named() -> None:
    named = fit_readout(ridge_problem(corpora=("a", "b", "c") * 8))
    assert set(named.penalty.chosen) == {"a", "b", "c"}
    assert set(fit_readout(ridge_problem(corpora=("a", "b") * 12)).penalty.chosen) == {
        f"part {n}" for n in range(1, 5)
    }
    assert len(fit_readout(ridge_problem(40)).penalty.chosen) == 8


def test_few_lists_of_one_corpus_choose_by_all_their_parts_and_named_corpora_as_in_the_paper() -> None:
    for problem, choose in (
        (ridge_problem(24), choose_penalty_of_few),
        (ridge_problem(40), choose_penalty),
        (ridge_problem(24, corpora=("a", "b", "c") * 8), choose_penalty),
    ):
        expected = choose(sum_by_fold(problem, assign_folds(problem.corpora)))
        fit = fit_readout(problem)
        assert fit.penalty.deployed == expected.deployed
        assert fit.penalty.chosen == expected.chosen
        least = min(
            float(np.min(expected.errors[fold]) / fit.validation_squares[fold]) for fold in expected.errors
        )
        assert 0 < least < 1


def test_fewer_than_sixteen_lists_are_refused() -> None:
    assert len(fit_readout(ridge_problem(16)).agreement) == 16
    with pytest.raises(CalibrationError, match="15 queries whose candidates the teacher tells apart, wanted"):
        fit_readout(ridge_problem(15))


def test_lists_the_teacher_cannot_tell_apart_are_not_usable() -> None:
    problem = ridge_problem()
    targets = problem.targets.copy()
    targets[: problem.lists.offsets[1]] = 4.0
    assert find_varied_lists(replace(problem, targets=targets)).tolist() == [False] + [True] * 23
