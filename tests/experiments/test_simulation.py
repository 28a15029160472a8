import pytest

from experiments.simulation import World, simulate
from ridgerank.fusion.correlations import correlation


def test_scores_correlate_with_each_other_as_one_factor_predicts() -> None:
    sample = simulate(World(c_b=0.5, c_s=0.6, c_t=0.7, candidates=200), queries=300, seed=0)
    pairs = ((sample.retriever, sample.reranker, 0.3), (sample.reranker, sample.teacher, 0.42))
    for first, second, expected in pairs:
        assert correlation(first, second, sample.lists).mean() == pytest.approx(expected, abs=0.01)
