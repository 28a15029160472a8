"""The target itself: the ridge solution around each fold's mean, held out, comparable across queries."""

import numpy as np

from ridgerank.ragged import Floats, Ragged
from ridgerank.readout import CenteredMoments, TargetReadout, fit_target_readouts

LISTS, MEMBERS, DIM = 32, 6, 5
FOLDS = tuple(f"part {number % 4}" for number in range(LISTS))


def draw() -> tuple[Floats, Floats]:
    """States whose level differs between lists, and targets that follow it: (lists, members, …)."""
    generator = np.random.default_rng(2)
    states = generator.normal(size=(LISTS, MEMBERS, DIM)) + 3 * generator.normal(size=(LISTS, 1, DIM))
    targets = states @ generator.normal(size=DIM) + 4 + 0.1 * generator.normal(size=(LISTS, MEMBERS))
    return states, targets


def fit(states: Floats, targets: Floats) -> tuple[TargetReadout, dict[str, TargetReadout]]:
    within: dict[str, CenteredMoments] = {}
    for fold, list_states, list_targets in zip(FOLDS, states, targets, strict=True):
        within.setdefault(fold, CenteredMoments(DIM)).add(list_states, list_targets)
    return fit_target_readouts(
        within,
        mean_states=states.mean(axis=1),
        mean_targets=targets.mean(axis=1),
        folds=FOLDS,
        members=states.shape[1],
    )


def test_it_solves_the_ridge_problem_around_each_folds_mean() -> None:
    states, targets = draw()
    readout, _ = fit(states, targets)
    by_fold = [np.flatnonzero([each == fold for each in FOLDS]) for fold in dict.fromkeys(FOLDS)]
    lists = Ragged.of_lengths([len(numbers) * MEMBERS for numbers in by_fold])
    H = lists.center(np.concatenate([states[numbers].reshape(-1, DIM) for numbers in by_fold]))
    t = lists.center(np.concatenate([targets[numbers].ravel() for numbers in by_fold]))
    expected = np.linalg.solve(H.T @ H + readout.penalty * np.eye(DIM), H.T @ t)
    np.testing.assert_allclose(readout.vector, expected, rtol=1e-9)
    residuals = targets - readout.predict(states.reshape(-1, DIM)).reshape(targets.shape)
    assert abs(residuals.mean()) < 1e-9


def test_a_query_it_never_saw_gets_the_level_of_its_targets() -> None:
    states, targets = draw()
    _, held_out = fit(states, targets)
    for fold, list_states, list_targets in zip(FOLDS, states, targets, strict=True):
        np.testing.assert_allclose(held_out[fold].predict(list_states), list_targets, atol=0.8)


def test_a_folds_own_targets_never_reach_its_readout() -> None:
    states, targets = draw()
    _, before = fit(states, targets)
    changed = targets.copy()
    changed[np.array(FOLDS) == "part 0"] += np.random.default_rng(3).normal(size=(LISTS // 4, MEMBERS)) * 50
    _, after = fit(states, changed)
    np.testing.assert_array_equal(after["part 0"].vector, before["part 0"].vector)
    assert after["part 0"].intercept == before["part 0"].intercept
    assert not np.array_equal(after["part 1"].vector, before["part 1"].vector)
