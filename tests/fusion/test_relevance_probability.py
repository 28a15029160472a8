"""Logistic regression by its conditions of optimality, and features by brute force."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from ridgerank.errors import CalibrationError
from ridgerank.fusion.relevance_probability import (
    Logistic,
    fit_logistic,
    page_features,
    query_features,
    remove_relevant,
)
from ridgerank.ragged import Bools, Floats, Ragged


def labelled_rows(rows: int = 300) -> tuple[Floats, Bools]:
    generator = np.random.default_rng(0)
    features = generator.normal(size=(rows, 3)) * [1, 10, 0.1] + [0, 5, -2]
    odds = 1.5 * features[:, 0] - 0.2 * features[:, 1] + 3 * features[:, 2] + 6
    return features, generator.random(rows) < 1 / (1 + np.exp(-odds))


def test_it_is_the_penalized_maximum_likelihood_of_scikit_learn() -> None:
    features, labels = labelled_rows()
    standardized = (features - features.mean(axis=0)) / features.std(axis=0)
    expected = LogisticRegression(C=1.0, tol=1e-12, max_iter=10_000).fit(standardized, labels)
    probabilities = fit_logistic(features, labels).probabilities(features)
    np.testing.assert_allclose(probabilities, expected.predict_proba(standardized)[:, 1], atol=1e-6)


def test_claimed_probabilities_add_up_to_what_was_observed() -> None:
    """The intercept is not penalized, so its derivative is zero."""
    features, labels = labelled_rows()
    assert fit_logistic(features, labels).probabilities(features).sum() == pytest.approx(labels.sum())


def test_the_unit_of_a_feature_does_not_matter() -> None:
    features, labels = labelled_rows()
    scaled = features * [1e3, 1e-3, 1] + [7, 0, 0]
    np.testing.assert_allclose(
        fit_logistic(scaled, labels).probabilities(scaled),
        fit_logistic(features, labels).probabilities(features),
        atol=1e-7,
    )


def test_classes_that_a_feature_separates_have_finite_coefficients() -> None:
    features = np.arange(40.0)[:, None]
    model = fit_logistic(features, features[:, 0] >= 20)
    assert 0 < model.coefficients[0] < 10
    assert ((model.probabilities(features) > 0.5) == (features[:, 0] >= 20)).all()


def test_a_constant_feature_and_an_unused_one_have_no_say() -> None:
    features, labels = labelled_rows()
    constant = np.column_stack([features[:, :1], np.full(len(features), 3.0)])
    assert fit_logistic(constant, labels).coefficients[1] == 0
    cut = fit_logistic(features, labels, columns=1)
    assert cut.coefficients[1:] == (0.0, 0.0)
    alone = fit_logistic(features[:, :1], labels)
    np.testing.assert_allclose(cut.probabilities(features), alone.probabilities(features[:, :1]))


def test_one_class_is_refused() -> None:
    with pytest.raises(CalibrationError, match="all rows have the same label"):
        fit_logistic(np.zeros((3, 1)), np.ones(3, dtype=bool))


def test_no_odds_are_too_large() -> None:
    probabilities = Logistic(0.0, (1.0,)).probabilities(np.array([[-1e4], [0.0], [1e4]]))
    assert probabilities.tolist() == [0.0, 0.5, 1.0]


def test_features_are_what_they_are_called() -> None:
    generator = np.random.default_rng(1)
    lengths = [1, 2, 5, 20]
    lists, values = Ragged.of_lengths(lengths), generator.normal(size=sum(lengths))
    values[3] = values[4] = 9.0  # a tie at the top: best and second are the same
    of_pages, of_queries = page_features(values, lists), query_features(values, lists)
    for number, members in enumerate(np.split(values, lists.offsets[1:-1])):
        ordered = np.sort(members)[::-1]
        expected = [ordered[0], ordered[min(1, len(members) - 1)], members.mean(), members.std()]
        np.testing.assert_allclose(of_queries[number], expected)
        rows = slice(lists.offsets[number], lists.offsets[number + 1])
        np.testing.assert_allclose(of_pages[rows], np.column_stack([members, members - members.mean()]))


def test_lists_without_their_relevant_members_keep_the_others_in_order() -> None:
    lists = Ragged.of_lengths([3, 2, 2])
    relevant = np.array([True, False, False, True, True, False, False])
    remaining, kept = remove_relevant(lists, relevant)
    assert remaining.lengths.tolist() == [2, 2]  # the second list had nothing else
    assert np.flatnonzero(kept).tolist() == [1, 2, 5, 6]
