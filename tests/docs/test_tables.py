"""Tables of README and docs/ that show a measurement are made from results/, all of them by one command."""

import re

import pytest

from benchmarks.tables import PAGES, TABLES, format_table, insert_tables, outdated_pages


def test_every_table_is_what_the_results_say() -> None:
    """If not: `python -m benchmarks.tables`."""
    assert not [page.name for page in outdated_pages()]


def test_every_table_stands_in_one_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = re.findall(r"<!-- (?:table|figure) (.+?) -->", text)
    assert sorted(named) == sorted(TABLES)


def test_a_table_between_its_comments_is_replaced_and_the_page_around_it_stays() -> None:
    page = "before\n<!-- table speed -->\n| old |\n<!-- end -->\nafter\n"
    renewed = insert_tables(page, {"speed": lambda: format_table(["ratio"], [["2x"]])})
    assert renewed == "before\n<!-- table speed -->\n\n| ratio |\n| --- |\n| 2x |\n\n<!-- end -->\nafter\n"
    assert insert_tables(renewed, {"speed": lambda: format_table(["ratio"], [["2x"]])}) == renewed


def test_a_name_that_nothing_makes_is_an_error() -> None:
    with pytest.raises(KeyError, match="speed"):
        insert_tables("<!-- table speed -->\n<!-- end -->", {})
