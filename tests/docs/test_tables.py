"""Tables of README and docs/ that show a measurement are made from results/, all of them by one command."""

import re

from benchmarks.tables import PAGES, TABLES, outdated_pages


def test_every_table_is_what_the_results_say() -> None:
    """If not: `python -m benchmarks.tables`."""
    assert not [page.name for page in outdated_pages()]


def test_every_table_stands_in_one_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = re.findall(r"<!-- (?:table|figure) (.+?) -->", text)
    assert sorted(named) == sorted(TABLES)
