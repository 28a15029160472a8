import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.simulation import World, simulate
from ridgerank.fusion.correlations import Correlations, correlation, varies
from ridgerank.fusion.weight import (
    FALLBACK_WEIGHT,
    closed_form_estimate,
    explain_by_one_factor,
    label_free_estimate,
    optimal_weight,
)
from ridgerank.ragged import Floats


@pytest.mark.parametrize(
    ("c_b", "c_s", "rho", "weight"),
    [
        (0.5, 0.5, 0.3, 0.5),  # equals share
        (0.5, 0.15, 0.3, 0.0),  # c_s = ρ c_b: the reranker adds nothing
        (0.15, 0.5, 0.3, 1.0),  # c_b = ρ c_s: the retriever adds nothing
        (0.5, -0.5, 0.2, 0.0),  # a reranker that is wrong
        (-0.5, 0.5, 0.2, 1.0),
        (-0.2, -0.4, 0.1, 0.0),  # both wrong: the less wrong
        (0.4, 0.4, 1.0, 0.0),  # one score twice
        (0.4, -0.4, -1.0, 0.0),  # mirror images
        (0.0, 0.0, 0.0, 0.0),  # nothing known
    ],
)
def test_end_points_and_degenerate_cases(c_b: float, c_s: float, rho: float, weight: float) -> None:
    assert float(optimal_weight(*map(np.asarray, (c_b, c_s, rho)))) == pytest.approx(weight)


@given(st.floats(0.05, 1.0), st.floats(0.05, 1.0), st.floats(0.05, 1.0))
def test_one_factor_recovers_the_correlations_it_was_made_from(b: float, s: float, t: float) -> None:
    c_b, c_s, at_edge = explain_by_one_factor(*map(np.asarray, (b * s, b * t, s * t)))
    assert not at_edge
    assert (float(c_b), float(c_s)) == pytest.approx((b, s))


@pytest.mark.parametrize("rhos", [(0.3, -0.2, 0.5), (-0.3, -0.2, 0.5)])
def test_one_factor_has_no_estimate_unless_all_correlations_are_positive(
    rhos: tuple[float, float, float],
) -> None:
    c_b, c_s, at_edge = explain_by_one_factor(*map(np.asarray, rhos))
    assert np.isnan([c_b, c_s]).all()
    assert not at_edge


def test_where_an_estimate_is_above_one_its_score_is_taken_for_relevance() -> None:
    c_b, c_s, at_edge = explain_by_one_factor(*map(np.asarray, (0.1, 0.005, 0.6)))
    assert at_edge
    assert (float(c_b), float(c_s)) == (0.1, 1.0)


def drawn(world: World, queries: int, seed: int, third: str) -> Correlations:
    """All positions count alike, as in the world that is drawn."""
    sample = simulate(world, queries=queries, seed=seed)
    vectors: list[Floats] = [sample.retriever, sample.reranker, getattr(sample, third)]
    kept, members = sample.lists.select(varies(sample.lists, *vectors))
    b, s, y = (each[members] for each in vectors)
    return Correlations(correlation(b, y, kept), correlation(s, y, kept), correlation(b, s, kept), 0)


def judged(world: World, queries: int, seed: int) -> Correlations:
    return drawn(world, queries, seed, "grades")


def unlabelled(world: World, queries: int, seed: int) -> Correlations:
    return drawn(world, queries, seed, "teacher")


def constant(first: float, second: float, mutual: float, queries: int = 30) -> Correlations:
    """The same three correlations in every query."""
    return Correlations(np.full(queries, first), np.full(queries, second), np.full(queries, mutual), 0)


def test_the_weight_is_the_closed_form_of_the_averaged_correlations() -> None:
    seen = judged(World(), 50, 1)
    estimate = closed_form_estimate(seen)
    assert estimate == closed_form_estimate(seen)
    assert estimate.weight == float(optimal_weight(*seen.stacked().mean(axis=0)))
    assert estimate.method == "closed-form"
    assert estimate.queries_used == seen.queries
    low, high = estimate.weight_interval
    assert low < estimate.weight < high
    assert estimate.chance_of_gain > 0.9


def test_the_label_free_weight_converges_to_the_one_read_from_relevance() -> None:
    world = World(c_b=0.5, c_s=0.6, c_t=0.7)
    truth = closed_form_estimate(judged(world, 20_000, 0)).weight
    errors = []
    for queries in (16, 256, 4096):
        weights = [label_free_estimate(unlabelled(world, queries, seed)).weight for seed in range(1, 9)]
        errors.append(float(np.mean(np.abs(np.array(weights) - truth))))
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.01


def test_the_interval_covers_the_true_weight_about_as_often_as_it_says() -> None:
    truth = closed_form_estimate(judged(World(), 20_000, 0)).weight
    intervals = [closed_form_estimate(judged(World(), 40, seed)).weight_interval for seed in range(1, 101)]
    assert 0.88 <= np.mean([low <= truth <= high for low, high in intervals]) <= 1.0


def test_one_query_says_nothing_about_its_own_uncertainty() -> None:
    estimate = closed_form_estimate(constant(0.2, 0.9, 0.1, queries=1))
    assert estimate.weight_interval == (0.0, 1.0)
    assert "only 1 query says" in estimate.note


def test_an_undefined_one_factor_estimate_falls_back_to_a_cautious_weight_and_says_so() -> None:
    estimate = label_free_estimate(constant(-0.1, 0.6, 0.1))
    assert (estimate.method, estimate.weight) == ("prior", FALLBACK_WEIGHT)
    assert "not all three correlations are positive" in estimate.note
    assert np.isnan(estimate.c_s)


def test_a_teacher_as_good_as_relevance_is_not_a_reason_to_fall_back() -> None:
    """With c_t near 1 every other sample puts its estimate above 1."""
    world = World(c_b=0.45, c_s=0.85, c_t=0.98)
    found = [label_free_estimate(unlabelled(world, 80, seed)) for seed in range(1, 21)]
    truth = closed_form_estimate(judged(world, 4000, 0)).weight
    assert {estimate.method for estimate in found} == {"label-free"}
    assert any("as good as relevance" in estimate.note for estimate in found)
    assert all(abs(estimate.weight - truth) < 0.15 for estimate in found)
