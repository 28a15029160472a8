import numpy as np
import pytest

from ridgerank.errors import CalibrationError
from ridgerank.ragged import Floats
from ridgerank.readout import CenteredMoments, ridge_path

DIM = 12


def random_lists(count: int, *, seed: int = 0, dim: int = DIM) -> list[tuple[Floats, Floats]]:
    generator = np.random.default_rng(seed)
    sizes = generator.integers(1, 9, size=count)
    return [(generator.standard_normal((size, dim)), generator.standard_normal(size)) for size in sizes]


def gathered(lists: list[tuple[Floats, Floats]], dim: int = DIM) -> CenteredMoments:
    moments = CenteredMoments(dim)
    for states, targets in lists:
        moments.add(states, targets)
    return moments


def stacked(lists: list[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    H = np.vstack([states - states.mean(axis=0) for states, _ in lists])
    t = np.concatenate([targets - targets.mean() for _, targets in lists])
    return H, t


def test_streaming_equals_stacking() -> None:
    lists = random_lists(900)
    H, t = stacked(lists)
    moments = gathered(lists)
    gram, moment = moments.products()
    np.testing.assert_allclose(gram, H.T @ H, rtol=1e-10)
    np.testing.assert_allclose(moment, H.T @ t, rtol=1e-9, atol=1e-10)
    assert moments.target_square == pytest.approx(t @ t)
    assert moments.lists == 900


def test_memory_stays_quadratic_in_the_width_however_many_pairs() -> None:
    moments = CenteredMoments(DIM)
    generator = np.random.default_rng(0)
    for _ in range(5000):
        moments.add(generator.standard_normal((20, DIM)), generator.standard_normal(20))
        assert sum(len(rows) for rows in moments._states) <= 1024 + 20


@pytest.mark.parametrize("split", [1, 3, 20, 37])
def test_merging_parts_equals_the_whole_whatever_form_they_have(split: int) -> None:
    lists = random_lists(40, seed=5)
    whole, part = gathered(lists), gathered(lists[:split])
    part.merge(gathered(lists[split:]))
    assert part.lists == whole.lists
    assert part.target_square == pytest.approx(whole.target_square)
    np.testing.assert_allclose(ridge_path(part), ridge_path(whole), rtol=1e-8, atol=1e-12)


def test_held_out_error_is_the_centered_squared_error_in_both_forms() -> None:
    readouts = np.random.default_rng(9).standard_normal((4, DIM))
    for lists in (random_lists(1, seed=4), random_lists(50, seed=4)):
        H, t = stacked(lists)
        expected = ((H @ readouts.T - t[:, None]) ** 2).sum(axis=0)
        np.testing.assert_allclose(gathered(lists).squared_error(readouts), expected)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_states_that_cannot_be_used_are_refused(bad: float) -> None:
    with pytest.raises(CalibrationError, match="NaN or infinite"):
        CenteredMoments(DIM).add(np.full((2, DIM), bad), np.zeros(2))
