"""The hit rates of docs/scale.md: an approximation that a cache confirms, and its limits."""

import pytest

from benchmarks.read_path import hit_rate, simulated_hit_rate


@pytest.mark.parametrize("exponent", [0.6, 1.0])
@pytest.mark.parametrize("cached", [50, 500])
def test_the_approximation_is_what_a_cache_does(exponent: float, cached: int) -> None:
    told = simulated_hit_rate(2000, cached, exponent, requests=60_000)
    assert hit_rate(2000, cached, exponent) == pytest.approx(told, abs=0.015)


def test_uniform_traffic_hits_in_proportion_to_the_cache() -> None:
    assert hit_rate(10**6, 10**5, 0.0) == pytest.approx(0.1, rel=1e-3)


def test_a_cache_of_everything_always_hits_and_one_of_nothing_never() -> None:
    assert hit_rate(1000, 1000, 0.8) == 1.0
    assert hit_rate(1000, 0, 0.8) == 0.0


def test_a_billion_pages_hit_less_than_a_million() -> None:
    rates = [hit_rate(pages, 10_000, 0.8) for pages in (10**4, 10**6, 10**9)]
    assert rates == sorted(rates, reverse=True)
