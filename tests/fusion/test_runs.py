"""Runs become one; weights of many runs against brute force over the simplex."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.simulation import World, simulate
from ridgerank.errors import CalibrationError, ScoreError
from ridgerank.fusion.runs import fuse, fuse_runs, join, judged_weights, optimal_weights
from ridgerank.fusion.standardize import standardize
from ridgerank.fusion.weight import optimal_weight
from ridgerank.ragged import Floats, Ragged
from ridgerank.trec import Run

Scored = dict[str, dict[str, float]]
scored = st.dictionaries(
    st.sampled_from("pqr"),
    st.dictionaries(st.sampled_from("abcdef"), st.floats(-5, 5), min_size=1),
    min_size=1,
)


@given(scored, scored, st.floats(0, 1))
def test_fusing_keeps_every_page_and_matches_the_formula(
    first: Scored, second: Scored, weight: float
) -> None:
    fused = fuse_runs(join(Run.of_dict(first), Run.of_dict(second)), weight).to_dict()
    assert fused.keys() == first.keys() | second.keys()
    for query, pages in fused.items():
        first_scores, second_scores = first.get(query, {}), second.get(query, {})
        assert set(pages) == set(first_scores) | set(second_scores)
        both = [page for page in pages if page in first_scores and page in second_scores]
        if both:
            lists = Ragged.of_lengths([len(both)])
            b = standardize(np.array([first_scores[page] for page in both]), lists)
            s = standardize(np.array([second_scores[page] for page in both]), lists)
            np.testing.assert_allclose(
                [pages[page] for page in both], (1 - weight) * b + weight * s, atol=1e-12
            )
            below = [page for page in pages if page not in both]
            assert all(pages[page] < min(pages[known] for known in both) for page in below)


def test_pages_one_run_lacks_follow_in_their_own_order_and_are_counted() -> None:
    retriever = Run.of_dict({"q": {"a": 9.0, "b": 8.0, "c": 7.0, "d": 6.0}, "only-b": {"a": 1.0}})
    reranker = Run.of_dict({"q": {"b": 1.0, "a": 2.0, "x": 5.0, "y": 6.0}, "only-s": {"z": 1.0, "a": 2.0}})
    joined = join(retriever, reranker)
    fused = fuse_runs(joined, 0.5)
    assert fused.pages(0) == ["a", "b", "c", "d", "y", "x"]
    assert fused.pages(1) == ["a"]
    assert fused.pages(2) == ["a", "z"]
    assert joined.missing() == [(1, 2), (1, 2)]


def test_the_output_is_already_in_the_order_a_reader_would_sort_it_into() -> None:
    """Equal scores by page id, last first."""
    generator = np.random.default_rng(0)
    runs = [
        Run.of_dict(
            {f"q{q}": {f"p{p}": float(generator.integers(3)) for p in range(q + 1)} for q in range(9)}
        )
        for _ in range(2)
    ]
    fused = fuse_runs(join(*runs), 0.3)
    assert list(Run.of_dict(fused.to_dict()).rows()) == list(fused.rows())


def test_relevance_is_zero_where_nobody_judged_and_where_the_grade_is_negative() -> None:
    joined = join(Run.of_dict({"q": {"a": 1.0, "b": 2.0, "c": 3.0}, "r": {"a": 1.0}}))
    assert joined.relevance({"q": {"a": 2, "b": -1}}).tolist() == [0.0, 0.0, 2.0, 0.0]


def test_three_runs_are_fused_by_their_weights_and_pages_some_lack_follow() -> None:
    runs = {
        "b": {"q": {"a": 3.0, "b": 2.0, "c": 1.0, "d": 0.5}},
        "s": {"q": {"a": 1.0, "b": 3.0, "c": 2.0, "e": 9.0, "f": 1.0}},
        "t": {"q": {"a": 1.0, "b": 2.0, "c": 3.0, "d": 0.5, "e": 7.0}},
    }
    fused = fuse(*runs.values(), weight=(1.0, 2.0, 1.0))
    lists = Ragged.of_lengths([3])
    z = [standardize(np.array([run["q"][page] for page in "abc"]), lists) for run in runs.values()]
    np.testing.assert_allclose([fused["q"][page] for page in "abc"], (z[0] + 2 * z[1] + z[2]) / 4, atol=1e-12)
    assert list(fused["q"]) == ["b", "c", "a", "d", "e", "f"]


@pytest.mark.parametrize("weight", [0.5, (0.5, 0.5), (1.0, -1.0, 1.0), (0.0, 0.0, 0.0)])
def test_weights_that_do_not_match_the_runs_are_refused(weight: float | tuple[float, ...]) -> None:
    run = {"q": {"a": 3.0, "b": 2.0}}
    with pytest.raises(ScoreError, match="weight"):
        fuse(run, run, run, weight=weight)


def random_case(count: int, generator: np.random.Generator) -> tuple[Floats, Floats]:
    """c and Σ of random vectors: every combination that can occur."""
    vectors = generator.standard_normal((count + 1, count + 1)) @ generator.standard_normal((count + 1, 9))
    gram = np.asarray(np.corrcoef(vectors + generator.normal() * vectors[:1]))
    return gram[:-1, -1], gram[:-1, :-1]


def fused_correlation(weights: Floats, relevance: Floats, mutual: Floats) -> Floats:
    """c'w / √(w'Σw)."""
    variance = np.einsum("...i,ij,...j->...", weights, mutual, weights)
    value: Floats = weights @ relevance / np.sqrt(variance)
    return value


@pytest.mark.parametrize(("count", "steps"), [(2, 400), (3, 60), (4, 20)])
def test_no_point_of_the_simplex_correlates_more_with_relevance(count: int, steps: int) -> None:
    generator = np.random.default_rng(count)
    corners = [cell for cell in product(range(steps + 1), repeat=count) if sum(cell) == steps]
    grid = np.array(corners) / steps
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
        if count == 2:  # proposition 1
            assert weights[1] == pytest.approx(float(optimal_weight(c[0], c[1], mutual[0, 1])), abs=1e-9)
    assert len(supports) == 2**count - 1  # every face of the simplex has been the best one


def test_a_score_given_twice_changes_nothing_and_the_least_wrong_is_best_alone() -> None:
    c, mutual = np.array([0.5, 0.6, 0.6]), np.array([[1.0, 0.2, 0.2], [0.2, 1.0, 1.0], [0.2, 1.0, 1.0]])
    once = optimal_weights(c[:2], mutual[:2, :2])
    twice = optimal_weights(c, mutual)
    np.testing.assert_allclose([twice[0], twice[1] + twice[2]], once)
    against = np.array([-0.3, -0.1, -0.2])
    np.testing.assert_array_equal(optimal_weights(against, np.eye(3)), [0.0, 1.0, 0.0])


def test_judged_weights_approach_the_inverse_times_c() -> None:
    sample = simulate(World(c_b=0.4, c_s=0.6, c_t=0.7), queries=400, seed=0)
    scores = np.vstack([sample.retriever, sample.reranker, sample.teacher])
    weights, queries = judged_weights(scores, sample.grades, sample.lists)
    c = np.array([0.4, 0.6, 0.7])
    mutual = np.outer(c, c)
    np.fill_diagonal(mutual, 1.0)
    expected = np.linalg.solve(mutual, c)
    np.testing.assert_allclose(weights, expected / expected.sum(), atol=0.05)
    assert 0 < queries <= 400
    with pytest.raises(CalibrationError, match="none of 1 queries can be used"):
        judged_weights(np.zeros((2, 4)), np.arange(4.0), Ragged.of_lengths([4]))
