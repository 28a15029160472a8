"""Tables in the pages of the documentation, made from the files in results/.

A table stands in a page between `<!-- table NAME -->` and `<!-- end -->`.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"

TableMakers = Mapping[str, Callable[[], str]]
"""Name of a table in the pages → what makes it."""


def format_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; a bar within a cell is written as a slash."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |" for cells in lines)


def read_result(name: str) -> Any:  # noqa: ANN401 (any JSON value)
    """What a file in results/ holds."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def insert_tables(page: str, makers: TableMakers) -> str:
    """The page with the tables it names; a name that no maker has is an error."""

    def insert(match: re.Match[str]) -> str:
        return f"<!-- table {match[1]} -->\n\n{makers[match[1]]()}\n\n<!-- end -->"

    return re.sub(r"<!-- table (.+?) -->\n.*?<!-- end -->", insert, page, flags=re.DOTALL)


def table_names(page: str) -> list[str]:
    """The tables a page names."""
    return re.findall(r"<!-- table (.+?) -->", page)
