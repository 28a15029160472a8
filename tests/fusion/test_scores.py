import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ridgerank.errors import CalibrationError, ScoreError
from ridgerank.fusion.correlations import correlate, correlation
from ridgerank.fusion.standardize import discounts, fuse_scores, standardize, standardize_weighted
from ridgerank.ragged import Floats, Ragged

ONE_LIST = 6
values = arrays(np.float64, ONE_LIST, elements=st.floats(-1e6, 1e6, width=32))
LISTS = Ragged.of_lengths([ONE_LIST])


@given(values)
def test_a_standardized_list_has_mean_zero_and_variance_one(v: Floats) -> None:
    z = standardize(v, LISTS)
    if v.max() == v.min():
        assert (z == 0).all()
    else:
        assert abs(z.mean()) < 1e-9
        assert z.std() == pytest.approx(1.0)


@given(values, st.floats(1e-3, 1e3), st.floats(-1e3, 1e3))
def test_scale_and_offset_of_a_retriever_do_not_matter(v: Floats, scale: float, offset: float) -> None:
    moved = v * scale + offset
    if np.ptp(moved) > 1e-6 * (1 + np.abs(moved).max()) and np.ptp(v) > 1e-6 * (1 + np.abs(v).max()):
        np.testing.assert_allclose(standardize(moved, LISTS), standardize(v, LISTS), atol=1e-6)


@given(values, arrays(np.float64, ONE_LIST, elements=st.floats(0.1, 10)))
def test_weighted_standardization_is_standard_in_its_own_inner_product(v: Floats, omega: Floats) -> None:
    z = standardize_weighted(v, omega, LISTS)
    if v.max() > v.min():
        assert abs((omega * z).sum() / omega.sum()) < 1e-9
        assert (omega * z * z).sum() / omega.sum() == pytest.approx(1.0)


def test_constant_lists_and_lists_of_one_become_zeros_without_touching_others() -> None:
    lists = Ragged.of_lengths([3, 1, 2])
    z = standardize(np.array([0.1, 0.1, 0.1, 5.0, 1.0, 3.0]), lists)
    assert z.tolist() == [0.0, 0.0, 0.0, 0.0, -1.0, 1.0]


def test_neighbouring_floats_are_told_apart_and_scores_too_wide_for_a_float_are_refused() -> None:
    z = standardize(np.array([1.0, np.nextafter(1.0, 2.0)]), Ragged.of_lengths([2]))
    assert z.tolist() == [-1.0, 1.0]
    with pytest.raises(ScoreError, match="span more"):
        standardize(np.array([-1.7e308, 1.7e308]), Ragged.of_lengths([2]))


@given(values, values)
def test_the_end_points_are_the_two_scores_alone(b: Floats, s: Floats) -> None:
    np.testing.assert_array_equal(fuse_scores(b, s, 0.0, LISTS), standardize(b, LISTS))
    np.testing.assert_array_equal(fuse_scores(b, s, 1.0, LISTS), standardize(s, LISTS))


@pytest.mark.parametrize("weight", [-0.01, 1.01, float("nan")])
def test_a_weight_outside_zero_to_one_is_refused(weight: float) -> None:
    with pytest.raises(ScoreError, match="expected a number from 0"):
        fuse_scores(np.zeros(ONE_LIST), np.zeros(ONE_LIST), weight, LISTS)


def test_discounts_follow_the_retrievers_order() -> None:
    omega = discounts(np.array([1.0, 3.0, 2.0]), Ragged.of_lengths([3]))
    np.testing.assert_allclose(omega, [1 / np.log2(4), 1 / np.log2(2), 1 / np.log2(3)])


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
