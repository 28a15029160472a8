"""Paired differences of runs, and intervals that know which queries belong together."""

import numpy as np
import pytest

from ridgerank.errors import ScoreError
from ridgerank.evaluation.metrics import Evaluation, compare_evaluations, group_by_document
from ridgerank.ragged import Floats

QRELS = {"a-1": {"x.pdf#1": 2, "y.pdf#4": 1}, "a-2": {"x.pdf#3": 1}, "b-1": {"z.pdf#1": 0}}


def evaluation(values: Floats) -> Evaluation:
    queries = tuple(f"q{number}" for number in range(len(values)))
    return Evaluation(queries, ("nDCG@5",), values[None, :], 0, 0)


def test_the_difference_is_paired_and_its_interval_that_of_the_normal_approximation() -> None:
    generator = np.random.default_rng(0)
    first = generator.uniform(0, 100, 400)
    gains = generator.normal(3.0, 10.0, 400)
    [paired] = compare_evaluations(evaluation(first), evaluation(first + gains))
    error = 1.96 * gains.std() / np.sqrt(400)
    assert paired.difference == pytest.approx(gains.mean())
    assert paired.interval == pytest.approx((gains.mean() - error, gains.mean() + error), abs=0.15)
    assert paired.share_above > 0.99
    assert paired.groups == 400


def test_queries_that_move_together_make_the_interval_wider() -> None:
    generator = np.random.default_rng(1)
    gains = np.repeat(generator.normal(1.0, 10.0, 20), 10)
    first, second = evaluation(np.zeros(200)), evaluation(gains)
    groups = {query: str(number // 10) for number, query in enumerate(first.queries)}
    [alone], [grouped] = (compare_evaluations(first, second, groups=each) for each in (None, groups))
    assert grouped.difference == pytest.approx(alone.difference)
    width = {each.groups: each.interval[1] - each.interval[0] for each in (alone, grouped)}
    assert width[20] == pytest.approx(np.sqrt(10) * width[200], rel=0.15)


def test_evaluations_of_other_queries_are_refused() -> None:
    with pytest.raises(ScoreError, match="other queries"):
        compare_evaluations(evaluation(np.zeros(3)), evaluation(np.zeros(4)))


def test_queries_are_grouped_by_document() -> None:
    assert group_by_document(QRELS) == {"a-1": "x.pdf", "a-2": "x.pdf", "b-1": "query b-1"}
