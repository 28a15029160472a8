from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgerank.errors import StoreError
from ridgerank.store.storage_setting import RULES, Keep, even_indices

rules = st.sampled_from(sorted(RULES))
fractions = st.fractions(min_value=Fraction(1, 50), max_value=1, max_denominator=50)
sizes = st.integers(1, 144)


def draw_norms(size: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.random.default_rng(7).random(size)


def masked(size: int, before: int, after: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.concatenate([np.zeros(before, bool), np.ones(size, bool), np.zeros(after, bool)])


@given(rules, fractions, sizes, st.integers(0, 5), st.integers(0, 5))
def test_exactly_the_fraction_stays_and_every_instruction_position(
    rule: str, fraction: Fraction, size: int, before: int, after: int
) -> None:
    visual = masked(size, before, after)
    kept = Keep(rule, fraction).positions(visual, draw_norms(size))
    assert kept.dtype == np.int32
    assert (np.diff(kept) > 0).all()
    assert visual[kept].sum() == max(1, round(fraction * size))
    assert set(np.flatnonzero(~visual)) <= set(kept)


@given(rules, sizes)
def test_all_stay_at_one(rule: str, size: int) -> None:
    visual = masked(size, 2, 1)
    kept = Keep(rule, Fraction(1)).positions(visual, draw_norms(size))
    assert kept.tolist() == list(range(visual.size))


@given(rules, fractions, sizes)
def test_the_same_page_keeps_the_same_positions(rule: str, fraction: Fraction, size: int) -> None:
    visual = masked(size, 0, 0)
    once, again = (Keep(rule, fraction).positions(visual, draw_norms(size)) for _ in range(2))
    assert once.tolist() == again.tolist()


@given(st.integers(1, 500), st.data())
def test_even_gaps_differ_by_at_most_one(total: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, total))
    chosen = even_indices(total, count)
    assert len(set(chosen.tolist())) == count
    assert 0 <= chosen[0] <= chosen[-1] < total
    assert np.ptp(np.diff(chosen)) <= 1 if count > 2 else True
    assert abs(int(chosen[0]) - (total - 1 - int(chosen[-1]))) <= 1


def test_value_norm_keeps_the_highest_and_breaks_ties_by_order() -> None:
    keep = Keep("value-norm", Fraction(1, 2))
    assert keep.positions(np.ones(4, bool), np.array([1, 3, 1, 2])).tolist() == [1, 3]
    assert keep.positions(np.ones(4, bool), np.array([1, 0, 1, 1])).tolist() == [0, 2]


@pytest.mark.parametrize("norms", [None, np.ones(3)])
def test_value_norm_without_the_norms_of_the_page_is_refused(
    norms: np.ndarray[tuple[int], np.dtype[np.float64]] | None,
) -> None:
    with pytest.raises(StoreError, match="'value-norm' needs the norm of every value vector"):
        Keep("value-norm").positions(np.ones(4, bool), norms)


@given(rules, fractions)
def test_a_choice_is_spelled_and_read_back(rule: str, fraction: Fraction) -> None:
    assert Keep.parse(str(Keep(rule, fraction))) == Keep(rule, fraction)


def test_the_default_is_spelled_as_the_lineage_has_it() -> None:
    assert str(Keep()) == "stride 1/3"
    assert Keep.parse("value-norm 0.25") == Keep("value-norm", Fraction(1, 4))


@pytest.mark.parametrize(
    "text", ["stride", "stride 0", "stride 1.5", "stride 1/0", "nonsense 1/3", "1/3", ""]
)
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(StoreError):
        Keep.parse(text)


def test_a_page_without_visual_positions_keeps_all() -> None:
    assert Keep().positions(np.zeros(3, bool)).tolist() == [0, 1, 2]
