import numpy as np
import pytest

from ridgerank.errors import ScoreError
from ridgerank.ragged import Ragged, finite_scores


def test_sums_and_spreads_stay_within_a_list() -> None:
    lists = Ragged.of_lengths([2, 3])
    values = np.array([1.0, 2.0, 10.0, 20.0, 30.0])
    assert lists.sum(values).tolist() == [3.0, 60.0]
    assert lists.repeat(np.array([7.0, 8.0])).tolist() == [7.0, 7.0, 8.0, 8.0, 8.0]
    assert lists.list_numbers().tolist() == [0, 0, 1, 1, 1]
    assert lists.positions().tolist() == [0, 1, 0, 1, 2]
    lists = Ragged.of_lengths([3, 2])  # ranks count from one and break ties by place
    assert lists.ranks(np.array([5.0, 9.0, 5.0, 1.0, 2.0])).tolist() == [2, 1, 3, 2, 1]


def test_center_is_the_projector_p() -> None:
    K = 4
    P = np.eye(K) - np.ones((K, K)) / K
    values = np.random.default_rng(0).standard_normal((K, 3))
    np.testing.assert_allclose(Ragged.of_lengths([K]).center(values), P @ values)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_scores_that_are_not_finite_are_refused_by_place(bad: float) -> None:
    with pytest.raises(ScoreError, match="in list 1, candidate 1"):
        finite_scores([1.0, 2.0, 3.0, bad], Ragged.of_lengths([2, 2]), what="retriever")


def test_empty_lists_and_missing_scores_are_refused() -> None:
    with pytest.raises(ScoreError, match="list 1 is empty"):
        Ragged.of_lengths([2, 0])
    with pytest.raises(ScoreError, match=r"shape \(1,\)"):
        finite_scores([1.0], Ragged.of_lengths([2]), what="retriever")


def test_no_lists_at_all_give_empty_results() -> None:
    lists = Ragged.of_lengths([])
    assert len(lists) == 0
    assert lists.sum(np.zeros(0)).size == lists.min(np.zeros(0)).size == lists.max(np.zeros(0)).size == 0
