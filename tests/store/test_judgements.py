"""Judgements beside a store: kept, taken back, read by other tools, whole after a crash."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import pytest

from ridgerank.errors import StoreError
from ridgerank.records import ScoredPages
from ridgerank.store.judgements import Judgement, Judgements, query_id
from ridgerank.trec import read_qrels, read_queries

QUERY = "operating margin"


def judged(page: str, grade: int | None, judge: str = "ada", query: str = QUERY) -> Judgement:
    return Judgement(query, page, f"{page}.pdf#1", grade, judge)


def test_the_last_word_of_each_person_counts_and_can_be_taken_back(tmp_path: Path) -> None:
    judgements = Judgements(str(tmp_path))
    for judgement in (judged("a", 2), judged("b", 1), judged("a", 0), judged("b", None)):
        judgements.add(judgement)
    [left] = judgements.read()
    assert (left.page_id, left.grade, left.judge) == ("a", 0, "ada")
    assert left.time.endswith("+00:00")
    # Nothing that was said is lost: the record has every line.
    assert len((tmp_path / "judgements/judgements.jsonl").read_text().splitlines()) == 4


def test_other_tools_read_them_as_qrels_and_queries(tmp_path: Path) -> None:
    judgements = Judgements(str(tmp_path))
    judgements.add(judged("a", 2))
    judgements.add(judged("b", 0, query="costs"))
    folder = tmp_path / "judgements"
    assert read_qrels(folder / "qrels.trec") == {
        query_id(QUERY): {"a.pdf#1": 2},
        query_id("costs"): {"b.pdf#1": 0},
    }
    assert [(query.query_id, query.text) for query in read_queries(folder / "queries.jsonl")] == [
        (query_id(QUERY), QUERY),
        (query_id("costs"), "costs"),
    ]


def test_where_people_differ_the_lower_median_stands(tmp_path: Path) -> None:
    judgements = Judgements(str(tmp_path))
    for judge, grade in (("ada", 2), ("bob", 1)):
        judgements.add(judged("a", grade, judge))
    assert judgements.grades() == {QUERY: {"a": 1}}
    judgements.add(judged("a", 2, "cy"))
    assert judgements.grades() == {QUERY: {"a": 2}}


def test_many_people_at_once_lose_nothing(tmp_path: Path) -> None:
    def judge(number: int) -> None:
        Judgements(str(tmp_path)).add(judged(f"page-{number}", number % 3, f"judge-{number % 4}"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(judge, range(40)))
    assert len(Judgements(str(tmp_path)).read()) == 40
    assert sum(map(len, read_qrels(tmp_path / "judgements/qrels.trec").values())) == 40


ODD_LINES = [
    '{"query": "operating mar',
    "[1, 2]",
    '{"query": "operating margin"}',
    json.dumps(asdict(judged("c", None)) | {"grade": "x"}),
    json.dumps(asdict(judged("c", None)) | {"grade": 10**400}),
    json.dumps(asdict(judged("c", 2)) | {"page_id": 3}),
    json.dumps(asdict(judged("c", 2)) | {"more": 1}),
]


@pytest.mark.parametrize("line", ODD_LINES)
def test_an_odd_line_costs_that_line_alone(
    tmp_path: Path, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    judgements = Judgements(str(tmp_path))
    judgements.add(judged("a", 2))
    judgements.add_list(QUERY, "new", ScoredPages(("a",), (1.0,), (3.0,)))
    for name in ("judgements.jsonl", "lists.jsonl"):
        with (tmp_path / "judgements" / name).open("a") as file:
            file.write(line)
    judgements.add(judged("b", 1))
    assert judgements.grades() == {QUERY: {"a": 2, "b": 1}}
    assert set(judgements.read_lists("new")) == {QUERY}
    assert "line 2 cannot be read and is skipped" in caplog.text


def test_scores_of_another_readout_are_not_mixed_in(tmp_path: Path) -> None:
    judgements = Judgements(str(tmp_path))
    judgements.add_list(QUERY, "old", ScoredPages(("a", "b"), (1.0, 2.0), (3.0, 4.0)))
    new = ScoredPages(("a", "b"), (1.0, 2.0), (5.0, 6.0))
    judgements.add_list(QUERY, "new", new)
    assert judgements.read_lists("new") == {QUERY: new}
    assert judgements.read_lists("other") == {}
    assert (
        json.loads((tmp_path / "judgements/lists.jsonl").read_text().splitlines()[0])["readout_id"] == "old"
    )


def test_a_store_that_cannot_be_written_refuses_and_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "judgements").write_text("in the way")
    with pytest.raises(StoreError, match="make the store writable"):
        Judgements(str(tmp_path)).require_writable()
    with pytest.raises(StoreError, match="not on a local disk"):
        Judgements("s3://bucket/pages")
