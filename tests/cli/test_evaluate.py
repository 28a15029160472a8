"""`ridgerank evaluate`."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import run_process


def test_evaluate_prints_a_line_a_query_when_asked(world: Path) -> None:
    lines = run_process(
        "evaluate", world / "teacher.trec", "--qrels", world / "qrels.trec", "--per-query"
    ).stdout.splitlines()
    assert len(lines) == 41
    values = [json.loads(line)["nDCG@5"] for line in lines]
    assert sum(values[:-1]) / 40 == pytest.approx(values[-1])
