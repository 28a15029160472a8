import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ridgerank.errors import ScoreError
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
