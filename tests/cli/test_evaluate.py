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


def test_two_runs_are_compared_with_an_interval(world: Path) -> None:
    runs = [world / "retriever.trec", world / "teacher.trec"]
    done = run_process("evaluate", *runs, "--qrels", world / "qrels.trec", "--by-document")
    first, second, comparison = map(json.loads, done.stdout.splitlines())
    assert [first["run"], second["run"]] == list(map(str, runs))
    difference = comparison["differences"]["nDCG@5"]
    assert difference["difference"] == pytest.approx(second["nDCG@5"] - first["nDCG@5"])
    assert difference["interval"][0] < difference["difference"] < difference["interval"][1]
    assert comparison["resampled"] == "40 documents"
    assert "nDCG@5, points (95 %)" in done.stderr


def test_qrels_that_name_pages_otherwise_are_noticed(world: Path, tmp_path: Path) -> None:
    lines = (world / "qrels.trec").read_text().splitlines()
    renamed = [
        " ".join([query, "0", f"digest-{page}", grade]) for query, _, page, grade in map(str.split, lines)
    ]
    (tmp_path / "qrels.trec").write_text("\n".join(renamed) + "\n")
    done = run_process("evaluate", world / "teacher.trec", "--qrels", tmp_path / "qrels.trec")
    assert "none of its pages is judged" in done.stderr
    assert "'digest-" in done.stderr
