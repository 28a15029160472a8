"""The table of ways to a weight, on synthetic lists."""

import numpy as np
import pytest

from experiments.weight_table import CONSTANT, RETRIEVER, Asked, format_rows, score_splits, summarize
from ridgerank.calibration.fit import QueryLists
from ridgerank.calibration.weight import Reading
from ridgerank.ragged import Ragged
from ridgerank.records import Query

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


def test_the_table_has_the_columns_that_some_row_has() -> None:
    row = {"set": "slides", "model": "llama", "retriever": "bm25"}
    first = {**row, "columns": {RETRIEVER: {"nDCG@5": 50.0}}, "weights": {RETRIEVER: 0.0}}
    second = {**row, "columns": {CONSTANT: {"nDCG@5": 61.25}}, "weights": {CONSTANT: 0.5}}
    header, _, *lines = format_rows([first, second]).splitlines()
    assert header == "| set | model | behind | retriever | constant 0.5 |"
    assert lines == ["| slides | llama | bm25 | 50.0 | – |", "| slides | llama | bm25 | – | 61.2 (0.50) |"]
