"""Latency: means over the timed queries, and intervals of means and of ratios."""

import numpy as np
import pytest

from experiments.reproduce.method_results import interval_95, measure_latency


def test_a_query_that_was_not_timed_does_not_count() -> None:
    latency = measure_latency(np.array([2.0, 4.0]), np.array([100.0, np.nan]), np.array([10.0, 30.0]))
    assert (latency.retrieval_ms, latency.reading_ms, latency.compute_ms) == (3.0, 10.0, 100.0)
    assert latency.total_ms == 113.0
    assert latency.samples_ms.tolist() == [112.0]


def test_the_interval_of_a_mean_is_that_of_its_standard_error() -> None:
    times = np.random.default_rng(0).normal(100.0, 10.0, size=400)
    latency = measure_latency(np.zeros(400), times)
    low, high = interval_95(latency.redraw(seed=0))
    assert low < latency.total_ms < high
    assert (high - low) / 2 == pytest.approx(1.96 * times.std() / 20, rel=0.1)
