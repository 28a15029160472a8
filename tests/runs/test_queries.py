"""Files of queries: what is read, and what is refused with the line named."""

from pathlib import Path

import pytest

from ridgerank.errors import QueryError
from ridgerank.records import MAX_QUERY_CHARACTERS, Query, validate_query
from ridgerank.trec import read_queries


def test_json_lines_and_plain_lines_are_read(tmp_path: Path) -> None:
    lines = tmp_path / "q.jsonl"
    lines.write_text(
        '{"query_id": "a", "text": " What? ", "corpus": "esg", "kind": 3}\n\n{"query_id": 7, "text": "Why"}'
    )
    assert read_queries(lines) == [Query("a", "What?", "esg"), Query("7", "Why")]
    plain = tmp_path / "q.txt"
    plain.write_text("\ufeffWhat is it?\n\n  Why, then?  \n", encoding="utf-8")
    assert read_queries(plain) == [Query("line-1", "What is it?"), Query("line-3", "Why, then?")]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no queries, expected at least one line"),
        (b'{"query_id": "a"}', "line 1: no 'text'; expected query_id and text"),
        (b'{"query_id": "a", "text": ""}', "line 1: query must not be empty"),
        (b'fine\n{"query_id": ', "line 2: not JSON"),
        (b'{"query_id": 1, "text": "x"}\n{"query_id": "1", "text": "y"}', "two queries have the id '1'"),
        (b"\xff\xfe", "not UTF-8"),
        (b"x" * 10_000, "line 1: a query of 10,000 characters"),
        (b'{"query_id": 1, "text": null}', "line 1: a text that is null"),
        (b'{"query_id": 1, "text": ["a", "b"]}', "line 1: a text that is a list"),
        (b'{"query_id": 1, "text": {"a": 1}}', "line 1: a text that is of type dict"),
        (b'{"query_id": 1, "text": "x", "corpus": 3}', "line 1: a corpus that is a number"),
        (b'{"query_id": null, "text": "x"}', "line 1: a query_id that is null"),
        (b'{"query_id": true, "text": "x"}', "line 1: a query_id that is true or false"),
        (b'{"query_id": 1.5, "text": "x"}', "line 1: a query_id that is a number"),
        (b'{"query_id": "a b", "text": "x"}', "line 1: the query_id 'a b', which a run cannot hold"),
        (b'{"query_id": "a\\u2028b", "text": "x"}', "line 1: the query_id"),
        (b'{"query_id": "", "text": "x"}', "line 1: the query_id ''"),
        (b'{"query_id": "\\ud800", "text": "x"}', "line 1: the query_id"),
        (b'{"query_id": "a", "text": "\\ud800"}', "line 1: a query with bytes that are not UTF-8"),
        (b'{"query_id": 1, "text": ' + b"[" * 100_000, "line 1: not JSON"),
        (b'{"query_id": ' + b"1" * 5000 + b', "text": "x"}', "line 1: not JSON"),
    ],
)
def test_a_bad_file_is_refused_with_the_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "q"
    path.write_bytes(content)
    with pytest.raises(QueryError, match=reason):
        read_queries(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="absent: No such file"):
        read_queries(tmp_path / "absent")


def test_the_limit_itself_is_allowed() -> None:
    assert len(validate_query("x" * MAX_QUERY_CHARACTERS)) == MAX_QUERY_CHARACTERS


def test_only_a_line_feed_ends_a_query(tmp_path: Path) -> None:
    path = tmp_path / "q"
    path.write_text("net\u2028margin\x0b?\r\nnext\x85line\r\n", encoding="utf-8", newline="")
    assert [query.text for query in read_queries(path)] == ["net\u2028margin\x0b?", "next\x85line"]
