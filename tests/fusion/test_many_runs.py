"""Proposition 1 for any number of scores, against brute force over the simplex."""

from itertools import product

import numpy as np
import pytest

from experiments.simulation import World, simulate
from ridgerank.errors import CalibrationError
from ridgerank.fusion.many_runs import judged_weights, optimal_weights
from ridgerank.fusion.weight import optimal_weight
from ridgerank.ragged import Floats, Ragged


def random_case(count: int, generator: np.random.Generator) -> tuple[Floats, Floats]:
    """c and Σ of random vectors: every combination that can occur."""
    vectors = generator.standard_normal((count + 1, count + 1)) @ generator.standard_normal((count + 1, 9))
    gram = np.asarray(np.corrcoef(vectors + generator.normal() * vectors[:1]))
    return gram[:-1, -1], gram[:-1, :-1]


def simplex_grid(count: int, steps: int) -> Floats:
    corners = [cell for cell in product(range(steps + 1), repeat=count) if sum(cell) == steps]
    return np.array(corners) / steps


def fused_correlation(weights: Floats, relevance: Floats, mutual: Floats) -> Floats:
    """c'w / √(w'Σw)."""
    variance = np.einsum("...i,ij,...j->...", weights, mutual, weights)
    value: Floats = weights @ relevance / np.sqrt(variance)
    return value


@pytest.mark.parametrize(("count", "steps"), [(2, 400), (3, 60), (4, 20)])
def test_no_point_of_the_simplex_correlates_more_with_relevance(count: int, steps: int) -> None:
    generator = np.random.default_rng(count)
    grid = simplex_grid(count, steps)
    supports = set()
    for _ in range(300):
        c, mutual = random_case(count, generator)
        weights = optimal_weights(c, mutual)
        assert weights.sum() == pytest.approx(1.0)
        assert (weights >= 0).all()
        reached = float(fused_correlation(weights, c, mutual))
        values = fused_correlation(grid, c, mutual)
        near = 0.98 * grid[values.argmax()] + 0.02 * generator.dirichlet(np.ones(count), size=200)
        assert reached >= max(values.max(), fused_correlation(near, c, mutual).max()) - 1e-12
        supports.add(tuple(weights > 0))
    assert len(supports) == 2**count - 1  # every face of the simplex has been the best one


def test_two_scores_are_proposition_1() -> None:
    generator = np.random.default_rng(0)
    for _ in range(500):
        c, mutual = random_case(2, generator)
        expected = float(optimal_weight(c[0], c[1], mutual[0, 1]))
        assert optimal_weights(c, mutual)[1] == pytest.approx(expected, abs=1e-9)


def test_where_every_score_deserves_weight_it_is_the_inverse_times_c() -> None:
    mutual = np.array([[1.0, 0.2, 0.1], [0.2, 1.0, 0.3], [0.1, 0.3, 1.0]])
    c = np.array([0.5, 0.4, 0.6])
    expected = np.linalg.solve(mutual, c)
    np.testing.assert_allclose(optimal_weights(c, mutual), expected / expected.sum())


def test_a_score_given_twice_changes_nothing() -> None:
    c, mutual = np.array([0.5, 0.6, 0.6]), np.array([[1.0, 0.2, 0.2], [0.2, 1.0, 1.0], [0.2, 1.0, 1.0]])
    once = optimal_weights(c[:2], mutual[:2, :2])
    twice = optimal_weights(c, mutual)
    np.testing.assert_allclose([twice[0], twice[1] + twice[2]], once)


def test_scores_that_all_point_away_from_relevance_leave_the_least_wrong_alone() -> None:
    c = np.array([-0.3, -0.1, -0.2])
    np.testing.assert_array_equal(optimal_weights(c, np.eye(3)), [0.0, 1.0, 0.0])


def test_judged_weights_approach_the_optimum() -> None:
    sample = simulate(World(c_b=0.4, c_s=0.6, c_t=0.7), queries=400, seed=0)
    scores = np.vstack([sample.retriever, sample.reranker, sample.teacher])
    weights, queries = judged_weights(scores, sample.grades, sample.lists)
    c = np.array([0.4, 0.6, 0.7])
    mutual = np.outer(c, c)
    np.fill_diagonal(mutual, 1.0)
    np.testing.assert_allclose(weights, optimal_weights(c, mutual), atol=0.05)
    assert 0 < queries <= 400


def test_lists_that_are_all_constant_are_refused() -> None:
    with pytest.raises(CalibrationError, match="none of 1 queries can be used"):
        judged_weights(np.zeros((2, 4)), np.arange(4.0), Ragged.of_lengths([4]))
