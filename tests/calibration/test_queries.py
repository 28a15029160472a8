"""Queries from pages' text: which lines become one, and that the same pages give the same."""

import pytest

from ridgerank.calibration.queries import is_query, queries_from_texts

PAGE = """Energy use in cold climates

Figure 3: Heating demand of old houses
Country   Demand   Share
Norway    12       3
The demand for heating oil fell in every region that had district heating by then.
"""


def query_texts(texts: dict[str, str], count: int = 99) -> list[str]:
    return [query.text for query in queries_from_texts(texts, count)[0]]


def test_titles_captions_headers_and_phrases_are_all_made() -> None:
    assert set(query_texts({"a": PAGE})) == {
        "Energy use in cold climates",
        "Heating demand of old houses",
        "Country Demand Share",
        "oil fell in every region that had",
    }


def test_kinds_take_turns_over_pages_and_the_report_counts_them() -> None:
    pages = {f"{number}": PAGE.replace("Norway", f"N{number}") for number in range(2)}
    queries, origin = queries_from_texts({"a": PAGE, "b": PAGE.replace("cold", "warm")}, 2)
    assert [query.text for query in queries] == [
        "Energy use in cold climates",
        "Heating demand of old houses",
    ]
    assert origin == "made from the pages' text: 1 titles, 1 captions"
    assert len(query_texts(pages)) == 4


def test_the_order_of_pages_does_not_matter_and_no_query_comes_twice() -> None:
    pages = {f"{number:02}": PAGE.replace("Energy", f"Energy plan {number}") for number in range(9)}
    forwards, backwards = query_texts(pages), query_texts(dict(reversed(pages.items())))
    assert forwards == backwards
    assert len(set(forwards)) == len(forwards)


def test_pages_that_say_nothing_give_no_query() -> None:
    assert query_texts({"a": "", "b": "12 345\n6.7", "c": "x y z"}) == []


@pytest.mark.parametrize("text", ["", "one two", "no no no no", "12 34 56 78", "word " * 30])
def test_what_nobody_would_ask_is_not_a_query(text: str) -> None:
    assert not is_query(text)
