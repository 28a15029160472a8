"""A table as data, and how it reads as JSON and Markdown."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Cell: TypeAlias = float | int | str | None
"""None is a cell with nothing to say."""


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and how numbers below it are written."""

    name: str
    format: str = ".1f"
    """As in `format(number, ".1f")`."""


@dataclass(frozen=True, slots=True)
class Row:
    """Cells from left to right."""

    cells: tuple[Cell, ...]
    source: str = ""
    """Empty for what was measured in this run; else where the figures are from."""
    note: str = ""
    """Why a row has no figures."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table."""

    name: str
    """`table1`: the file, and what `--only` calls it."""
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = field(default=())

    def to_json(self) -> str:
        """Unrounded figures, cell by cell, under their headings."""
        rows = [
            {
                "source": row.source or "this run",
                **({"note": row.note} if row.note else {}),
                "cells": [
                    None if isinstance(cell, float) and math.isnan(cell) else cell for cell in row.cells
                ],
            }
            for row in self.rows
        ]
        whole = {
            "name": self.name,
            "title": self.title,
            "caption": self.caption,
            "columns": [column.name for column in self.columns],
            "rows": rows,
            "notes": list(self.notes),
        }
        return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"

    def to_markdown(self) -> str:
        """A table for reading."""
        head = " | ".join(_escape_bar(column.name) for column in self.columns)
        lines = [f"### {self.title}", "", self.caption, "", f"| {head} |", f"|{'---|' * len(self.columns)}"]
        for row in self.rows:
            cells = [_escape_bar(text) for text in self.texts(row)]
            if row.source:
                cells = [f"*{text}*" if text else "" for text in cells]
            lines.append(f"| {' | '.join(cells)} |")
        lines += ["", *(f"- {note}" for note in self.notes)]
        return "\n".join(lines).rstrip() + "\n"

    def texts(self, row: Row) -> list[str]:
        """The cells of a row as text; a row from elsewhere says so in its last column of words."""
        written = [_format_cell(cell, column) for cell, column in zip(row.cells, self.columns, strict=True)]
        words = [number for number, column in enumerate(self.columns) if column.format == "s"]
        remark = f"({row.source})" if row.source else ""
        remark = f"{remark} not run: {row.note}".strip() if row.note else remark
        if remark:
            last = words[-1] if words else 0
            written[last] = f"{written[last]} {remark}".strip()
        return written


def text_columns(*names: str) -> tuple[Column, ...]:
    """Columns of words."""
    return tuple(Column(name, "s") for name in names)


def number_columns(names: Sequence[str], number_format: str = ".1f") -> tuple[Column, ...]:
    """Columns of numbers of one format."""
    return tuple(Column(name, number_format) for name in names)


def _format_cell(cell: Cell, column: Column) -> str:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return "" if column.format == "s" else "–"
    if isinstance(cell, str):
        return cell
    return format(cell, column.format)


def _escape_bar(text: str) -> str:
    return text.replace("|", r"\|")
