"""The table of what users get: on synthetic lists, and the whole command on a few pages."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments import weight_table
from experiments.weight_table import CONSTANT, RETRIEVER, Asked, score_splits, summarize
from ridgerank.calibration.fit import QueryLists
from ridgerank.calibration.weight import Reading
from ridgerank.indexing.index import index_documents
from ridgerank.ragged import Ragged
from ridgerank.records import Query
from ridgerank.scoring.shallow import ShallowPass
from tests.backbones.small_text_models import build_text
from tests.calibrated_store import write_reports

READING: Reading = ("likelihood", "mean")


def test_judged_questions_are_never_scored_and_gains_are_over_the_retriever() -> None:
    generator = np.random.default_rng(1)
    relevance = np.eye(5)[generator.integers(0, 5, 40)]  # one of five pages answers each question
    queries = tuple(Query(f"q{number}", "question") for number in range(40))
    pages = tuple(f"page {page}" for page in range(5))
    noise, states = generator.normal(size=200), {READING[1]: relevance.reshape(-1, 1)}
    lists = QueryLists(queries, pages * 40, Ragged.of_lengths([5] * 40), noise, states, {}, relevance.ravel())
    grades = [dict(zip(pages, map(int, row), strict=True)) for row in relevance.tolist()]
    qrels = {query.query_id: of_query for query, of_query in zip(queries, grades, strict=True)}
    asked, scores = Asked(lists, tuple("ab" * 20), qrels), relevance.ravel()
    quality = {RETRIEVER: asked.quality((scores, 0.0)), CONSTANT: asked.quality((scores, 1.0))}
    seen: list[int] = []

    def decide(questions: QueryLists | None) -> tuple[Reading, float]:
        assert questions is not None
        seen.append(len(questions.queries))
        return READING, float(len(questions.queries) > 8)

    scorers = {READING: lambda each: each.states["mean"][:, 0]}
    aside = np.arange(40) < 16
    columns, weights = score_splits(asked, scorers, decide, quality, aside)
    assert len(columns[CONSTANT]) == 24
    assert weights == pytest.approx({"8 judged": 0.0, "16 judged": 1.0})
    assert set(seen) == {8, 16}
    assert np.allclose(columns["8 judged"], columns[RETRIEVER])
    gain = summarize(columns, asked.groups[16:])["16 judged"]
    assert gain["nDCG@5"] == 100.0
    assert gain["interval"][0] <= gain["gain"] <= gain["interval"][1]


def test_one_command_measures_every_column_and_goes_on_from_what_it_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    build_text("qwen2", tmp_path / "model")
    write_reports(tmp_path / "documents", pages=60)
    rows = [
        {"query_id": f"q{n}", "text": f"revenue of the report {n}", "document": f"report-{n % 6}.pdf"}
        for n in range(40)
    ]
    (tmp_path / "queries.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    grades = (f"{row['query_id']} 0 {row['document']}#{n % 10 + 1} 1\n" for n, row in enumerate(rows))
    (tmp_path / "qrels.trec").write_text("".join(grades))
    index_documents(tmp_path / "documents", tmp_path / "store", str(tmp_path / "model"), processes=0)
    out = tmp_path / "rows.json"
    words = ["weight_table", str(tmp_path / "store"), str(tmp_path), "--out", str(out), "--row", "reports"]
    monkeypatch.setattr(sys, "argv", [*words, "--work", str(tmp_path / "work"), "--dtype", "float32"])
    weight_table.main()
    [row] = weight_table.read_rows(out)
    expected = {RETRIEVER, CONSTANT, weight_table.ASKED, weight_table.FULL, "8 judged", "16 judged"}
    assert expected <= row["columns"].keys()
    assert weight_table.CROSS not in row["columns"]  # none was given
    assert row["scored"] == len(row["groups"]) == len(row["by question"][RETRIEVER]) == 24
    assert row["agreement"].keys() == {"made", "real", "ratio", "questions"}
    assert min(row["seconds"].values()) > 0

    def fail(*_: object) -> None:
        raise AssertionError("this was computed before")

    monkeypatch.setattr(ShallowPass, "run_both", fail)
    monkeypatch.setattr(weight_table, "time_queries", lambda *_: {"request": 1.0})
    out.unlink()
    weight_table.main()
    [again] = weight_table.read_rows(out)
    assert again["columns"] == row["columns"]
    assert "| reports | model | bm25 |" in capsys.readouterr().out
