from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgerank.errors import StoreError
from ridgerank.store.pruning import RULES, Keep, PageFeatures, cell_deviation, even_indices

rules = st.sampled_from(sorted(RULES))
fractions = st.fractions(min_value=Fraction(1, 50), max_value=1, max_denominator=50)
sides = st.integers(1, 12)


def look(rows: int, columns: int, seed: int = 0, *, rule: str = "stride") -> PageFeatures:
    """A page the rule can look at: text for those that read."""
    random = np.random.default_rng(seed)
    grey = np.full((rows * 4 + 3, columns * 4 + 1), 255, dtype=np.uint8)
    grey[: rows * 2] = random.integers(0, 256, (rows * 2, columns * 4 + 1))
    words = ["the ", "of ", "revenue ", "2019 ", "Norvale", "\n"]
    text = tuple(words[number] for number in random.integers(0, len(words), rows * columns))
    pieces = text if rule == "informative" else None
    values = random.normal(size=(rows * columns, 6))
    norms, distances = (np.linalg.norm(values - mean, axis=1) for mean in (0, values.mean(axis=0)))
    return PageFeatures((rows, columns), grey, values, pieces, norms, distances)


def masked(rows: int, columns: int, before: int, after: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.concatenate([np.zeros(before, bool), np.ones(rows * columns, bool), np.zeros(after, bool)])


@given(rules, fractions, sides, sides, st.integers(0, 5), st.integers(0, 5))
def test_exactly_the_fraction_stays_and_every_instruction_position(
    rule: str, fraction: Fraction, rows: int, columns: int, before: int, after: int
) -> None:
    visual = masked(rows, columns, before, after)
    kept = Keep(rule, fraction).positions(visual, look(rows, columns, rule=rule))
    assert kept.dtype == np.int32
    assert (np.diff(kept) > 0).all()
    assert visual[kept].sum() == max(1, round(fraction * rows * columns))
    assert set(np.flatnonzero(~visual)) <= set(kept)


@given(rules, sides, sides)
def test_all_stay_at_one(rule: str, rows: int, columns: int) -> None:
    visual = masked(rows, columns, 2, 1)
    kept = Keep(rule, Fraction(1)).positions(visual, look(rows, columns, rule=rule))
    assert kept.tolist() == list(range(visual.size))


@given(rules, fractions, sides, sides)
def test_the_same_page_keeps_the_same_positions(
    rule: str, fraction: Fraction, rows: int, columns: int
) -> None:
    visual = masked(rows, columns, 0, 0)
    once, again = (
        Keep(rule, fraction).positions(visual, look(rows, columns, 7, rule=rule)) for _ in range(2)
    )
    assert once.tolist() == again.tolist()


@given(st.integers(1, 500), st.data())
def test_even_gaps_differ_by_at_most_one(total: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, total))
    chosen = even_indices(total, count)
    assert len(set(chosen.tolist())) == count
    assert 0 <= chosen[0] <= chosen[-1] < total
    assert np.ptp(np.diff(chosen)) <= 1 if count > 2 else True
    assert abs(int(chosen[0]) - (total - 1 - int(chosen[-1]))) <= 1


def test_ink_goes_to_what_is_written() -> None:
    grey = np.full((80, 60), 255, dtype=np.uint8)
    grey[20:30, 10:50:2] = 0
    kept = Keep("ink", Fraction(1, 6)).positions(
        np.ones(48, bool), PageFeatures((8, 6), grey, np.zeros((48, 1)))
    )
    inked = np.flatnonzero(cell_deviation(grey, (8, 6)).ravel() > 0)
    assert set(inked) <= set(kept.tolist())
    assert inked.tolist() == [13, 14, 15, 16]


def test_rules_refuse_the_other_kind_of_page() -> None:
    with pytest.raises(StoreError, match="reads text"):
        Keep("informative").positions(np.ones(4, bool), look(2, 2))
    with pytest.raises(StoreError, match="looks at an image"):
        Keep("ink").positions(np.ones(4, bool), look(2, 2, rule="informative"))


def test_informative_goes_to_numbers_names_and_headings_before_filler() -> None:
    pieces = (
        "Margins",
        "\n",
        "The",
        " margin",
        " of",
        " Nor",
        "vale",
        " was",
        " 12",
        ".4",
        " in",
        " it",
        ".",
    )
    shown = PageFeatures((1, len(pieces)), np.zeros((1, 1)), np.zeros((len(pieces), 1)), pieces)
    kept = RULES["informative"](shown, 6)
    assert [pieces[place] for place in kept] == ["Margins", " margin", " Nor", "vale", " 12", ".4"]


def test_spread_takes_one_of_each_kind_before_any_twice() -> None:
    kinds = np.repeat(np.eye(4), 5, axis=0)
    kept = RULES["spread"](PageFeatures((4, 5), np.zeros((4, 5)), kinds), 4)
    assert sorted(kept // 5) == [0, 1, 2, 3]


def test_patch_deviation_is_that_of_each_patch() -> None:
    grey = np.random.default_rng(0).integers(0, 256, (13, 17)).astype(np.uint8)
    found = cell_deviation(grey, (3, 4))
    rows, columns = (
        [cells * extent // count for cells in range(count + 1)] for count, extent in ((3, 13), (4, 17))
    )
    for row in range(3):
        for column in range(4):
            patch = grey[rows[row] : rows[row + 1], columns[column] : columns[column + 1]]
            assert found[row, column] == pytest.approx(patch.astype(float).std())


def test_an_image_smaller_than_its_grid_is_blank_or_not_without_failing() -> None:
    assert cell_deviation(np.full((2, 3), 9.0), (5, 7)).shape == (5, 7)


def test_value_rules_keep_the_highest_and_break_ties_by_order() -> None:
    page = replace(look(2, 2), value_norms=np.array([1, 3, 1, 2]), value_distances=np.array([1, 0, 1, 1]))
    assert Keep("value-norm", Fraction(1, 2)).positions(np.ones(4, bool), page).tolist() == [1, 3]
    assert Keep("value-distance", Fraction(1, 2)).positions(np.ones(4, bool), page).tolist() == [0, 2]


def test_value_rules_without_value_vectors_are_refused() -> None:
    page = PageFeatures((2, 2), np.zeros((1, 1)), np.zeros((4, 3)))
    for rule in ("value-norm", "value-distance"):
        with pytest.raises(StoreError, match=f"'{rule}' chooses by value vectors"):
            Keep(rule).positions(np.ones(4, bool), page)


@given(rules, fractions)
def test_a_choice_is_spelled_and_read_back(rule: str, fraction: Fraction) -> None:
    assert Keep.parse(str(Keep(rule, fraction))) == Keep(rule, fraction)


def test_the_default_is_spelled_as_the_lineage_has_it() -> None:
    assert str(Keep()) == "stride 1/3"
    assert Keep.parse("ink 0.25") == Keep("ink", Fraction(1, 4))


@pytest.mark.parametrize(
    "text", ["stride", "stride 0", "stride 1.5", "stride 1/0", "nonsense 1/3", "1/3", ""]
)
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(StoreError):
        Keep.parse(text)


def test_a_page_without_visual_positions_keeps_all() -> None:
    empty = PageFeatures((0, 0), np.zeros((1, 1)), np.zeros((0, 3)))
    assert Keep().positions(np.zeros(3, bool), empty).tolist() == [0, 1, 2]


def test_a_grid_that_does_not_match_is_refused() -> None:
    with pytest.raises(StoreError, match=r"6 visual positions on a grid of \(2, 2\)"):
        Keep().positions(np.ones(6, bool), look(2, 2))
