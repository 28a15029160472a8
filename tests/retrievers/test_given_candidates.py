from pathlib import Path

import pytest

from ridgerank.errors import RetrieverError, RunFileError, StoreError
from ridgerank.records import Candidate, Query
from ridgerank.retrievers.hybrid import GivenCandidates
from ridgerank.store.page_store import PageStore
from ridgerank.store.store_writer import StoreWriter
from ridgerank.trec import read_run
from tests.store.pages import LINEAGE, page_id, row


def test_an_iterable_is_handed_out_best_first() -> None:
    retriever = GivenCandidates(
        [("cats", "b", 1.0), ("cats", "a", 1.0), ("dogs", "a", 3), ("cats", "c", 2.0)]
    )
    assert retriever.search("cats", 2) == [Candidate("c", 2.0), Candidate("a", 1.0)]
    assert retriever.search_many(["dogs", "cats"], 9)[0] == [Candidate("a", 3.0)]
    assert retriever.score("cats", ["b", "c"]).tolist() == [1.0, 2.0]


def test_a_trec_run_is_found_by_the_text_and_by_the_id_of_its_queries(tmp_path: Path) -> None:
    run = tmp_path / "run.trec"
    run.write_text("q1 Q0 a 1 0.5 x\nq1 Q0 b 2 0.7 x\nq2 Q0 a 1 0.1 x\n")
    retriever = GivenCandidates.of_run(read_run(run), [Query("q1", "cats"), Query("q3", "birds")])
    assert (
        retriever.search("cats", 5) == retriever.search("q1", 5) == [Candidate("b", 0.7), Candidate("a", 0.5)]
    )
    with pytest.raises(RetrieverError, match="no candidates for the query 'birds', only for 3 others"):
        retriever.search("birds", 5)


def test_lines_of_json_may_name_pages_as_people_do(tmp_path: Path) -> None:
    uri = str(tmp_path / "store")
    with StoreWriter(uri, LINEAGE) as writer:
        writer.append([row(number) for number in range(3)])
    lines = tmp_path / "candidates.jsonl"
    lines.write_text(
        '{"query": "cats", "page": "report.pdf#2", "score": 4}\n\n'
        f'{{"query": "cats", "page": "{page_id(0)}", "score": 1.5, "more": true}}\n'
    )
    with PageStore.open(uri) as store:
        retriever = GivenCandidates.of_jsonl(lines, resolve=store.find)
        assert retriever.name == "candidates.jsonl"
        assert retriever.search("cats", 5) == [Candidate(page_id(2), 4.0), Candidate(page_id(0), 1.5)]
        lines.write_text('{"query": "cats", "page": "other.pdf#2", "score": 4}\n')
        with pytest.raises(StoreError, match=r"no page 'other\.pdf#2'"):
            GivenCandidates.of_jsonl(lines, resolve=store.find)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("not json", "wanted an object"),
        ("[1, 2]", "wanted an object"),
        ('{"query": "cats", "page": "a"}', "line 1: .*wanted an object with query, page and score"),
        ('{"query": "cats", "page": 3, "score": 1}', "have to be text"),
        ('{"query": "cats", "page": "a", "score": "high"}', "the score a number"),
        ('{"query": "a", "page": "b", "score": true}', "the score a number"),
        ('{"query": "a", "page": "b", "score": 1e999}', "the score a number"),
        ('{"query": "a", "page": "b", "score": 1' + "0" * 400 + "}", "a score of 401 digits"),
        ("[" * 100_000, "wanted an object with query, page and score"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "candidates.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(RunFileError, match=reason):
        GivenCandidates.of_jsonl(path)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(RunFileError, match=r"absent\.jsonl: No such file"):
        GivenCandidates.of_jsonl(tmp_path / "absent.jsonl")
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe{")
    with pytest.raises(RunFileError, match="not UTF-8"):
        GivenCandidates.of_jsonl(tmp_path / "bytes.jsonl")


def test_what_was_not_given_is_not_known() -> None:
    retriever = GivenCandidates([("cats", "a", 1.0)])
    with pytest.raises(RetrieverError, match=r"no score to page 'b' under query 'cats', nor to 1 more"):
        retriever.score("cats", ["a", "b", "c"])


def test_two_scores_for_a_page_and_scores_that_are_none_are_refused() -> None:
    with pytest.raises(RetrieverError, match="page 'a' stands twice under query 'cats'"):
        GivenCandidates([("cats", "a", 1.0), ("cats", "a", 2.0)])
    with pytest.raises(RetrieverError, match="has score nan"):
        GivenCandidates([("cats", "a", float("nan"))])
