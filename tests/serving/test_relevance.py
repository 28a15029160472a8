"""The score in [0, 1]: its order, and what it claims."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri

from ridgerank.calibration.artifact import Calibration
from ridgerank.fusion.estimate import user_estimate
from ridgerank.lineage import Lineage
from ridgerank.serving.relevance import relevance_at
from tests.calibrated_store import random_calibration

LINEAGE = Lineage("m", "f", "w", "t", "p", "q", 6, 0, "all", "int8")


def calibration(
    weight: float, c_b: float, c_s: float, rho: float, *, method: str = "label-free"
) -> Calibration:
    estimate = replace(user_estimate(weight), c_b=c_b, c_s=c_s, rho=rho, method=method)  # type: ignore[arg-type]
    return replace(random_calibration(LINEAGE, 4), weight=estimate)


correlations = st.floats(-0.99, 0.99)


@given(
    weight=st.floats(0, 1),
    c_b=correlations,
    c_s=correlations,
    rho=correlations,
    scores=st.lists(st.integers(-1400, 1400), min_size=2, max_size=30, unique=True),
)
def test_it_orders_as_the_fused_score_does(
    weight: float, c_b: float, c_s: float, rho: float, scores: list[int]
) -> None:
    fused = np.sort(np.array(scores) / 100)
    probabilities = relevance_at(calibration(weight, c_b, c_s, rho), weight).probabilities(fused)
    width = np.sqrt((1 - weight) ** 2 + weight**2 + 2 * weight * (1 - weight) * rho)
    assert ((probabilities >= 0) & (probabilities <= 1)).all()
    if width > 0.2:  # two scores that cancel out leave nothing to order by
        assert (np.diff(probabilities) > 0).all()


def test_it_is_the_chance_of_relevance_where_its_assumptions_hold() -> None:
    generator = np.random.default_rng(0)
    weight, c_b, c_s, rho = 0.6, 0.5, 0.8, 0.45
    covariance = [[1, c_b, c_s], [c_b, 1, rho], [c_s, rho, 1]]
    quality, b, s = generator.multivariate_normal(np.zeros(3), covariance, size=400_000).T
    fused = (1 - weight) * b + weight * s
    relevant = quality > ndtri(1 - 1 / 20)
    claimed = relevance_at(calibration(weight, c_b, c_s, rho), weight).probabilities(fused)
    for low, high in ((0, 0.02), (0.05, 0.1), (0.2, 0.3), (0.4, 0.6), (0.7, 0.8)):
        inside = (claimed >= low) & (claimed < high)
        assert inside.sum() > 300
        assert relevant[inside].mean() == pytest.approx(claimed[inside].mean(), abs=0.02)


def test_correlations_with_judgements_say_the_same_as_those_with_quality() -> None:
    """Yes and no correlate less with a score than the quality behind them does, by a known factor."""
    generator = np.random.default_rng(1)
    quality, s = generator.multivariate_normal(np.zeros(2), [[1, 0.6], [0.6, 1]], size=400_000).T
    judged = float(np.corrcoef(quality > ndtri(1 - 1 / 20), s)[0, 1])
    by_quality = relevance_at(calibration(1.0, 0.3, 0.6, 0.2), 1.0)
    by_judgement = relevance_at(calibration(1.0, 0.1, judged, 0.2, method="closed-form"), 1.0)
    assert by_judgement.slope == pytest.approx(by_quality.slope, rel=0.03)


def test_without_an_estimate_it_says_so() -> None:
    unknown = float("nan")
    guessed = relevance_at(calibration(0.2, unknown, unknown, unknown), 0.2)
    assert not guessed.estimated
    assert guessed.slope > 0
