import numpy as np
import pytest

from experiments.simulation import Sample, World, simulate
from ridgerank.fusion.correlations import Correlations, correlate
from ridgerank.fusion.estimate import (
    FALLBACK_WEIGHT,
    closed_form_estimate,
    label_free_estimate,
    user_estimate,
)
from ridgerank.fusion.prior import Prior
from ridgerank.fusion.weight import optimal_weight, resolve_heywood_case


def labelled(sample: Sample) -> Correlations:
    return correlate(sample.retriever, sample.reranker, sample.grades, sample.lists, discounted=False)


def unlabelled(sample: Sample) -> Correlations:
    return correlate(sample.retriever, sample.reranker, sample.teacher, sample.lists, discounted=False)


def triple(c_b: float, c_s: float, rho: float, queries: int = 30) -> Correlations:
    return Correlations(np.full(queries, c_b), np.full(queries, c_s), np.full(queries, rho), 0, 0, 0)


def test_the_weight_is_the_closed_form_of_the_averaged_correlations() -> None:
    seen = labelled(simulate(World(), queries=50, seed=1))
    estimate = closed_form_estimate(seen)
    assert estimate.weight == float(optimal_weight(*seen.stacked().mean(axis=0)))
    assert estimate.method == "closed-form"
    assert estimate.queries_used == seen.queries
    low, high = estimate.weight_interval
    assert low < estimate.weight < high
    assert estimate.chance_of_gain > 0.9


def test_the_label_free_weight_converges_to_the_one_read_from_relevance() -> None:
    world = World(c_b=0.5, c_s=0.6, c_t=0.7)
    truth = closed_form_estimate(labelled(simulate(world, queries=20_000, seed=0))).weight
    errors = []
    for queries in (16, 256, 4096):
        draws = [simulate(world, queries=queries, seed=seed) for seed in range(1, 9)]
        weights = [label_free_estimate(unlabelled(draw)).weight for draw in draws]
        errors.append(float(np.mean(np.abs(np.array(weights) - truth))))
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.01


def test_the_interval_covers_the_true_weight_about_as_often_as_it_says() -> None:
    world = World()
    truth = closed_form_estimate(labelled(simulate(world, queries=20_000, seed=0))).weight
    intervals = [
        closed_form_estimate(labelled(simulate(world, queries=40, seed=seed))).weight_interval
        for seed in range(1, 101)
    ]
    covered = np.mean([low <= truth <= high for low, high in intervals])
    assert 0.88 <= covered <= 1.0


def test_the_same_runs_give_the_same_interval() -> None:
    seen = labelled(simulate(World(), queries=30, seed=3))
    assert closed_form_estimate(seen) == closed_form_estimate(seen)


def test_one_query_says_nothing_about_its_own_uncertainty() -> None:
    estimate = closed_form_estimate(triple(0.2, 0.9, 0.1, queries=1))
    assert estimate.weight_interval == (0.0, 1.0)
    assert "only 1 query says" in estimate.note


def test_an_undefined_one_factor_estimate_falls_back_to_a_cautious_weight_and_says_so() -> None:
    heywood = label_free_estimate(triple(0.005, 0.6, 0.1))
    assert heywood.method == "prior"
    assert heywood.weight == FALLBACK_WEIGHT
    assert "exceeds 1" in heywood.note
    assert np.isnan(heywood.c_s)
    negative = label_free_estimate(triple(-0.1, 0.6, 0.1))
    assert negative.method == "prior"
    assert "not all three correlations are positive" in negative.note


def test_a_teacher_as_good_as_relevance_is_no_reason_to_fall_back() -> None:
    """With c_t near 1 every other sample puts its estimate above 1."""
    world = World(c_b=0.45, c_s=0.85, c_t=0.98)
    estimates = [
        label_free_estimate(unlabelled(simulate(world, queries=80, seed=seed))) for seed in range(1, 21)
    ]
    truth = closed_form_estimate(labelled(simulate(world, queries=4000, seed=0))).weight
    assert {estimate.method for estimate in estimates} == {"label-free"}
    settled = [estimate for estimate in estimates if "as good as relevance" in estimate.note]
    assert settled
    assert all(abs(estimate.weight - truth) < 0.15 for estimate in estimates)


def test_a_score_settled_on_the_edge_is_relevance_itself() -> None:
    low, middle, high = (np.asarray(value) for value in (0.4, 0.6, 0.9))
    for triple_of, expected in (
        ((low, middle, high), (0.6, 0.9)),  # c_t² = 1.35
        ((middle, low, high), (0.6, 1.0)),  # c_s² = 1.35
        ((middle, high, low), (1.0, 0.6)),  # c_b² = 1.35
    ):
        np.testing.assert_array_equal(resolve_heywood_case(*triple_of), expected)


def test_the_default_prior_is_the_retriever_alone() -> None:
    assert float(optimal_weight(*Prior().mean)) == pytest.approx(0.0)


def test_shrinking_moves_few_queries_to_the_prior_and_leaves_many_alone() -> None:
    few, many = triple(0.1, 0.9, 0.1, queries=2), triple(0.1, 0.9, 0.1, queries=5000)
    plain = closed_form_estimate(few).weight
    shrunk_few = closed_form_estimate(few, prior=Prior()).weight
    shrunk_many = closed_form_estimate(many, prior=Prior()).weight
    prior_weight = float(optimal_weight(*Prior().mean))
    assert abs(shrunk_few - prior_weight) < abs(plain - prior_weight)
    assert shrunk_many == pytest.approx(plain, abs=0.01)


def test_without_queries_the_prior_is_all_there_is() -> None:
    assert Prior().share(triple(0, 0, 0, queries=0)).tolist() == [1.0, 1.0, 1.0]


def test_a_shrunk_weight_is_almost_never_worse_than_the_retriever_alone() -> None:
    """A weak reranker and four queries: what ruins a plain estimate."""
    world = World(c_b=0.5, c_s=0.25)
    test = labelled(simulate(world, queries=5000, seed=999)).stacked().mean(axis=0)
    loss = {True: 0, False: 0}
    for seed in range(100):
        seen = labelled(simulate(world, queries=4, seed=seed))
        for shrink in loss:
            estimate = closed_form_estimate(seen, prior=Prior() if shrink else None)
            weight = estimate.weight
            fused = ((1 - weight) * test[0] + weight * test[1]) / np.sqrt(
                (1 - weight) ** 2 + weight**2 + 2 * weight * (1 - weight) * test[2]
            )
            loss[shrink] += int(fused < test[0])
    assert loss[True] <= 5 < loss[False]


def test_a_given_weight_is_passed_through() -> None:
    assert user_estimate(0.3).weight == 0.3
    assert user_estimate(0.3).method == "given"
