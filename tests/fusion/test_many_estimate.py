"""Weights for three and more scores, with judgements and without."""

import numpy as np
import pytest

from ridgerank.errors import CalibrationError
from ridgerank.fusion.correlations import correlate
from ridgerank.fusion.many_estimate import (
    ManyCorrelations,
    correlate_many,
    estimate_judged_weights,
    estimate_weights_without_labels,
    user_weights,
)
from ridgerank.fusion.many_scores import optimal_weights
from ridgerank.ragged import Floats, Ragged

TRUTH = np.array([0.4, 0.5, 0.6, 0.7])


def draw(queries: int, seed: int, c: Floats = TRUTH) -> tuple[Floats, Floats, Ragged]:
    """Scores that see a latent relevance, each through noise of its own."""
    generator = np.random.default_rng(seed)
    lists = Ragged.of_lengths([20] * queries)
    latent = generator.standard_normal(lists.members)
    noise = generator.standard_normal((len(c), lists.members))
    return c[:, None] * latent + np.sqrt(1 - c[:, None] ** 2) * noise, latent, lists


def test_correlations_of_two_scores_are_those_of_equation_3() -> None:
    scores, latent, lists = draw(30, 0)
    many = correlate_many(scores[:2], latent, lists)
    pair = correlate(scores[0], scores[1], latent, lists)
    assert many.relevance is not None
    np.testing.assert_allclose(many.relevance, np.column_stack([pair.retriever, pair.reranker]))
    np.testing.assert_allclose(many.mutual[:, 0, 1], pair.mutual)


def test_judged_weights_approach_the_optimum_and_few_queries_stay_near_equal_ones() -> None:
    mutual = np.outer(TRUTH, TRUTH)
    np.fill_diagonal(mutual, 1.0)
    optimum = optimal_weights(TRUTH, mutual)
    scores, latent, lists = draw(2000, 1)
    many = estimate_judged_weights(correlate_many(scores, latent, lists, discounted=False))
    np.testing.assert_allclose(many.weights, optimum, atol=0.03)
    distances = []
    for queries in (2, 2000):
        scores, latent, lists = draw(queries, 2)
        estimate = estimate_judged_weights(correlate_many(scores, latent, lists, discounted=False))
        distances.append(float(np.abs(np.array(estimate.weights) - 0.25).max()))
    assert distances[0] < distances[1]


def test_intervals_hold_the_optimum_about_as_often_as_they_say() -> None:
    mutual = np.outer(TRUTH[:3], TRUTH[:3])
    np.fill_diagonal(mutual, 1.0)
    optimum = optimal_weights(TRUTH[:3], mutual)
    held = []
    for seed in range(30):
        scores, latent, lists = draw(40, seed, TRUTH[:3])
        estimate = estimate_judged_weights(correlate_many(scores, latent, lists, discounted=False))
        held += [low <= w <= high for (low, high), w in zip(estimate.weight_intervals, optimum, strict=True)]
    assert np.mean(held) > 0.85


def test_without_labels_weights_come_from_the_correlations_alone_and_say_so() -> None:
    scores, latent, lists = draw(1000, 3)
    correlations = correlate_many(scores, None, lists, discounted=False)
    estimate = estimate_weights_without_labels(correlations, 4)
    judged = estimate_judged_weights(correlate_many(scores, latent, lists, discounted=False))
    np.testing.assert_allclose(estimate.weights, judged.weights, atol=0.06)
    assert estimate.method == "label-free"
    assert "without judgements" in estimate.note
    assert estimate.misfit < 0.02


def test_a_chance_of_gain_without_judgements_counts_the_models_own_error() -> None:
    scores, _, lists = draw(4000, 4, np.array([0.7, 0.6, 0.65, 0.6]))
    estimate = estimate_weights_without_labels(correlate_many(scores, None, lists), 4)
    assert 0.5 < estimate.chance_of_gain < 1.0
    assert max(high - low for low, high in estimate.weight_intervals) > 0.2


def test_scores_beyond_the_fused_ones_get_no_weight() -> None:
    scores, _, lists = draw(200, 5)
    estimate = estimate_weights_without_labels(correlate_many(scores, None, lists), 2)
    assert len(estimate.weights) == len(estimate.relevance) == 2


def test_shared_noise_is_reported_as_misfit() -> None:
    scores, _, lists = draw(500, 6)
    common = np.random.default_rng(7).standard_normal(lists.members)
    scores[:2] += common
    clean = estimate_weights_without_labels(correlate_many(draw(500, 6)[0], None, lists), 4)
    assert estimate_weights_without_labels(correlate_many(scores, None, lists), 4).misfit > 3 * clean.misfit


def test_a_score_given_twice_is_noticed() -> None:
    scores, _, lists = draw(500, 6)
    copied = np.vstack([scores[:3], scores[2] + 0.1 * scores[3]])
    note = estimate_weights_without_labels(correlate_many(copied, None, lists), 4).note
    assert "scores 3 and 4 correlate at" in note
    assert "correlate at" not in estimate_weights_without_labels(correlate_many(scores, None, lists), 4).note


def test_scores_that_share_nothing_fall_back_near_the_first() -> None:
    unrelated = ManyCorrelations(np.tile(np.eye(3), (20, 1, 1)), None, 0)
    estimate = estimate_weights_without_labels(unrelated, 3)
    assert estimate.method == "prior"
    assert estimate.weights == pytest.approx((0.8, 0.1, 0.1))
    assert "not an estimate" in estimate.note


def test_two_scores_without_judgements_are_refused() -> None:
    scores, _, lists = draw(20, 8)
    with pytest.raises(CalibrationError, match="2 scores, wanted at least 3"):
        estimate_weights_without_labels(correlate_many(scores[:2], None, lists), 2)


def test_constant_lists_are_left_out_and_lists_that_are_all_constant_refused() -> None:
    scores, latent, lists = draw(20, 9)
    scores[1, :20] = 1.0
    assert correlate_many(scores, latent, lists).skipped == 1
    with pytest.raises(CalibrationError, match="none of 20 queries"):
        correlate_many(np.ones_like(scores), latent, lists)


def test_one_query_says_nothing_about_its_own_uncertainty() -> None:
    scores, latent, lists = draw(1, 10)
    estimate = estimate_judged_weights(correlate_many(scores, latent, lists))
    assert set(estimate.weight_intervals) == {(0.0, 1.0)}
    assert np.isnan(estimate.chance_of_gain)


def test_given_weights_are_scaled() -> None:
    assert user_weights(np.array([1.0, 1.0, 2.0])).weights == (0.25, 0.25, 0.5)
