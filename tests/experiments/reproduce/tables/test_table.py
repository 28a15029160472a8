"""A table reads the same as JSON, Markdown and LaTeX."""

import json
import math

from experiments.reproduce.tables.table import Column, Row, Table, text_columns

TABLE = Table(
    "table0",
    "Table 0. A title",
    "50 % of a caption.",
    (*text_columns("arm", "kind"), Column("nDCG@5"), Column("Δ", "+.2f")),
    (
        Row(("ours", "a|b", 71.234, 1.5)),
        Row(("theirs", "x_y", 70.0, None), source="paper, A100"),
        Row(("missing", "z", None, math.nan), note="no GPU here"),
    ),
    ("a note",),
)


def test_markdown_has_every_row_and_says_where_figures_are_from() -> None:
    lines = TABLE.to_markdown().splitlines()
    assert r"| ours | a\|b | 71.2 | +1.50 |" in lines
    assert "| *theirs* | *x_y (paper, A100)* | *70.0* | *–* |" in lines
    assert "| missing | z not run: no GPU here | – | – |" in lines
    assert lines[-1] == "- a note"


def test_json_keeps_the_figures_unrounded() -> None:
    content = json.loads(TABLE.to_json())
    assert content["columns"] == ["arm", "kind", "nDCG@5", "Δ"]
    assert content["rows"][0] == {"source": "this run", "cells": ["ours", "a|b", 71.234, 1.5]}
    assert content["rows"][1]["source"] == "paper, A100"
    assert content["rows"][2] == {
        "source": "this run", "note": "no GPU here", "cells": ["missing", "z", None, None],
    }  # fmt: skip
