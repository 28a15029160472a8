import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgerank.errors import StoreError
from ridgerank.store.storage_setting import PAPER_NUMBERS, VALUE_WIDTHS, WIDTHS, NumberFormat, packed_rows

VALUE_WIDTH = st.sampled_from(VALUE_WIDTHS)


@given(keys=st.sampled_from(WIDTHS), values=VALUE_WIDTH, group=st.none() | st.integers(8, 512))
def test_what_is_printed_is_parsed(keys: int, values: int, group: int | None) -> None:
    numbers = NumberFormat(keys, values, group)
    assert NumberFormat.parse(str(numbers)) == numbers


def test_eight_bits_are_the_paper_and_nothing_else_is() -> None:
    assert NumberFormat.parse("8") == NumberFormat.parse("8/8") == PAPER_NUMBERS
    assert PAPER_NUMBERS.symmetric
    assert not any(NumberFormat.parse(text).symmetric for text in ("4", "8/4", "4/8", "8 group 32"))


@pytest.mark.parametrize("text", ["", "16", "four", "4 32", "4/", "4 group", "4 group x", "-4"])
def test_another_spelling_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(StoreError, match="'4 group 32'"):
        NumberFormat.parse(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("5", "8, 4, 3, 2"),
        ("1", "keys of 8, 4, 3, 2"),
        ("4/6", "values of 8, 4, 3, 2, 1"),
        ("4 group 2", "8 to 65535"),
    ],
)
def test_widths_and_groups_that_do_not_exist_are_refused(text: str, reason: str) -> None:
    with pytest.raises(StoreError, match=reason):
        NumberFormat.parse(text)


@given(positions=st.integers(1, 999), bits=VALUE_WIDTH)
def test_packed_rows_waste_less_than_two_bytes_a_channel(positions: int, bits: int) -> None:
    assert 0 <= 8 * packed_rows(positions, bits) - positions * bits < 16
