"""The line shown under a hit."""

import pytest

from ridgerank.serving.answers import MAX_CHARACTERS, find_matching_line

TEXT = "Annual report\n\nRevenue rose in Asia.\n| Revenue | 2019 | operating margins | 12 % |\nCosts fell."


@pytest.mark.parametrize(
    ("query", "line", "marked"),
    [
        (
            "What was the operating margin in 2019?",
            "Revenue 2019 operating margins 12 %",
            "2019 operating margins",
        ),
        ("Asian revenue", "Revenue rose in Asia.", "Revenue Asia"),
        ("zebra farming on Mars", "Annual report", ""),
    ],
)
def test_it_is_the_line_with_most_of_the_querys_words(query: str, line: str, marked: str) -> None:
    matched = find_matching_line(TEXT, query)
    assert matched is not None
    assert matched.text == line
    assert " ".join(matched.text[start:end] for start, end in matched.marks) == marked


def test_a_long_line_is_cut_around_the_words() -> None:
    matched = find_matching_line(f"{'before ' * 80}the operating margin{' after' * 80}", "operating margin")
    assert matched is not None
    assert len(matched.text) <= MAX_CHARACTERS + 4
    assert matched.text.startswith("… ")
    assert matched.text.endswith(" …")
    assert [matched.text[start:end] for start, end in matched.marks] == ["operating", "margin"]


def test_a_page_without_text_has_no_line() -> None:
    assert find_matching_line(" \n--\n", "anything") is None
