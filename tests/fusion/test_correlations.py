import numpy as np
import pytest

from ridgerank.errors import CalibrationError
from ridgerank.fusion.correlations import correlate, correlation
from ridgerank.ragged import Ragged


def test_discounted_correlations_match_a_weighted_covariance() -> None:
    generator = np.random.default_rng(2)
    b, s, y = generator.standard_normal((3, 7))
    seen = correlate(b, s, y, Ragged.of_lengths([7]))
    rank = (-b).argsort().argsort() + 1
    covariance = np.cov(np.vstack([b, s, y]), aweights=1 / np.log2(1 + rank), ddof=0)
    scale = np.sqrt(np.diag(covariance))
    expected = covariance / np.outer(scale, scale)
    assert seen.mutual[0] == pytest.approx(expected[0, 1])
    assert seen.retriever[0] == pytest.approx(expected[0, 2])
    assert seen.reranker[0] == pytest.approx(expected[1, 2])


def test_queries_with_a_constant_list_are_left_out_and_counted_once_each() -> None:
    lists = Ragged.of_lengths([2, 2, 2, 2, 1])
    b = np.array([1.0, 2.0, 1.0, 1.0, 1.0, 2.0, 1.0, 2.0, 1.0])
    s = np.array([2.0, 1.0, 1.0, 1.0, 3.0, 3.0, 1.0, 2.0, 1.0])
    y = np.array([0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0])
    seen = correlate(b, s, y, lists)
    assert (seen.queries, seen.skipped) == (1, 4)


def test_nothing_to_read_from_is_an_error_that_counts() -> None:
    seen = correlate(np.ones(4), np.arange(4.0), np.arange(4.0), Ragged.of_lengths([2, 2]))
    with pytest.raises(CalibrationError, match=r"none of 2 queries can be used"):
        seen.require_queries()


def test_correlation_of_a_list_with_itself_is_one_and_of_a_constant_zero() -> None:
    lists = Ragged.of_lengths([3, 3])
    x = np.array([1.0, 2.0, 4.0, 5.0, 5.0, 5.0])
    np.testing.assert_allclose(correlation(x, x, lists), [1.0, 0.0])
