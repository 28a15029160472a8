"""Measures of probabilities: against scikit-learn, and where the answer is known."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from experiments.protocols.probability_measures import auroc, expected_calibration_error, reliability_bins


def test_auroc_is_that_of_scikit_learn_with_ties() -> None:
    generator = np.random.default_rng(0)
    scores, labels = generator.integers(0, 9, 200).astype(float), generator.random(200) < 0.3
    assert auroc(scores, labels) == pytest.approx(roc_auc_score(labels, scores))


def test_probabilities_that_are_right_have_no_error_and_certain_ones_that_are_wrong_have_all() -> None:
    half = np.full(10, 0.5)
    assert expected_calibration_error(half, np.arange(10) < 5) == 0
    assert expected_calibration_error(np.ones(10), np.zeros(10, dtype=bool)) == 1
    assert expected_calibration_error(np.ones(10), np.arange(10) < 3) == pytest.approx(0.7)


@pytest.mark.parametrize("equal_mass", [False, True])
def test_bins_hold_every_row_once(equal_mass: bool) -> None:
    generator = np.random.default_rng(1)
    probabilities = np.concatenate([generator.random(97), [0.0, 1.0, 0.1]])
    labels = generator.random(100) < probabilities
    parts = reliability_bins(probabilities, labels, equal_mass=equal_mass)
    assert sum(part.rows for part in parts) == 100
    assert sum(part.rows * part.observed for part in parts) == pytest.approx(labels.sum())
    assert [part.claimed for part in parts] == sorted(part.claimed for part in parts)
