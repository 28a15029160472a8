import numpy as np
import pytest

from experiments.simulation import World, simulate
from ridgerank.fusion.correlations import correlation


def test_the_same_seed_draws_the_same_sample() -> None:
    first, second = (simulate(World(), queries=5, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.retriever, second.retriever)
    assert first.qrels() == second.qrels()


def test_scores_correlate_with_each_other_as_one_factor_predicts() -> None:
    sample = simulate(World(c_b=0.5, c_s=0.6, c_t=0.7, candidates=200), queries=300, seed=0)
    pairs = ((sample.retriever, sample.reranker, 0.3), (sample.reranker, sample.teacher, 0.42))
    for first, second, expected in pairs:
        assert correlation(first, second, sample.lists).mean() == pytest.approx(expected, abs=0.01)
