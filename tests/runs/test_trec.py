import io
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgerank.errors import QueryError, RidgeRankError, RunFileError, ScoreError
from ridgerank.records import MAX_QUERY_CHARACTERS, Query, validate_query
from ridgerank.trec import Run, read_qrels, read_queries, read_run, write_qrels, write_run

words = st.text("abcé#./-_0123456789", min_size=1, max_size=6)
scores = st.floats(allow_nan=False, allow_infinity=False)


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@given(
    scored=st.dictionaries(
        words, st.dictionaries(words, scores, min_size=1, max_size=4), min_size=1, max_size=4
    )
)
def test_a_run_reads_back_to_the_last_bit(
    scored: dict[str, dict[str, float]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = io.StringIO()
    write_run(Run.of_dict(scored), text, tag="t")
    path = written(tmp_path_factory.mktemp("runs") / "run.trec", text.getvalue())
    assert read_run(path).to_dict() == scored


def test_the_score_decides_and_tabs_blank_lines_and_a_byte_order_mark_are_harmless(tmp_path: Path) -> None:
    run = read_run(written(tmp_path / "r", "\ufeffq\tQ0\ta\t1\t0.5\tt\n\nq Q0 b 2 0.9 t\n"))
    assert list(run.rows()) == [("q", "b", 1, 0.9), ("q", "a", 2, 0.5)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q Q0 a 1 0.5", "line 2: 5 fields, expected 6"),
        ("q Q0 a 1 high t", "line 2: score 'high'"),
        ("q Q0 a 1 nan t", "line 2: score 'nan', expected a finite number"),
        ("q Q0 a 1 1_0 t", "line 2: score '1_0', expected a float"),
        ("p Q0 a 1 0.1 t", "line 2: page 'a' already stands under query 'p' in line 1"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = written(tmp_path / "bad.trec", f"p Q0 a 1 1.0 t\n{line}\n")
    with pytest.raises(RunFileError, match=f"bad.trec, {message}"):
        read_run(path)


def test_files_that_are_no_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFileError, match="no lines"):
        read_run(written(tmp_path / "empty", "\n"))
    with pytest.raises(RunFileError, match="No such file"):
        read_run(tmp_path / "absent")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RunFileError, match="not UTF-8"):
        read_run(tmp_path / "binary")
    with pytest.raises(RunFileError, match="Is a directory"):
        read_run(tmp_path)


def test_qrels_read_back_and_contradictions_are_named(tmp_path: Path) -> None:
    text = io.StringIO()
    write_qrels({"q": {"a": 2, "b": 0}, "r": {"a": -1}}, text)
    assert read_qrels(written(tmp_path / "q", text.getvalue())) == {"q": {"a": 2, "b": 0}, "r": {"a": -1}}
    with pytest.raises(RunFileError, match=r"line 2: grade 1 for page 'a'.*graded 2"):
        read_qrels(written(tmp_path / "q", "q 0 a 2\nq 0 a 1\n"))
    with pytest.raises(RunFileError, match="grade 'x', expected a int"):
        read_qrels(written(tmp_path / "q", "q 0 a x\n"))
    for grade in ("1_0", "٣", "1" * 5000, "9" * 30):
        with pytest.raises(RunFileError, match="line 1: grade"):
            read_qrels(written(tmp_path / "q", f"q 0 a {grade}\n"))


def test_queries_keep_their_order_and_pages_go_by_score_then_by_page_id_last_first() -> None:
    run = Run.of_columns(["z", "a", "z", "z"], ["p", "p", "o", "q"], [1.0, 1.0, 2.0, 1.0])
    assert (run.queries, run.pages(0), len(run)) == (("z", "a"), ["o", "q", "p"], 2)


def test_a_page_twice_under_one_query_and_nan_are_refused() -> None:
    with pytest.raises(ScoreError, match="nan"):
        Run.of_dict({"q": {"p": float("nan")}})
    with pytest.raises(ScoreError, match="'p' stands twice under query 'q'"):
        Run.of_columns(["q", "q"], ["p", "p"], [1.0, 2.0])


_WORDS = [b'{"query_id": 1, "text": ', b'"x"}', b"q Q0 a 1 0.5 t", b"q 0 a 1", b"\n", b"\xff", b"[", b"1e999"]
content = st.lists(st.sampled_from(_WORDS) | st.binary(max_size=8), max_size=12).map(b" ".join)


@pytest.mark.parametrize("read", [read_queries, read_run, read_qrels])
@settings(max_examples=100, deadline=None)
@given(data=content)
def test_any_bytes_are_read_or_refused_with_an_error_of_ours(
    read: Callable[[Path], object], data: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed"
    path.write_bytes(data)
    with suppress(RidgeRankError):
        read(path)


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
        (b"x" * 10_000, "line 1: a query of 10,000 characters"),
        (b'{"query_id": 1, "text": ["a", "b"]}', "line 1: a text that is a list"),
        (b'{"query_id": true, "text": "x"}', "line 1: a query_id that is true or false"),
        (b'{"query_id": "a b", "text": "x"}', "line 1: the query_id 'a b', which a run cannot hold"),
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


def test_only_a_line_feed_ends_a_query_and_one_at_the_limit_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with pytest.raises(QueryError, match="q: No such file"):
        read_queries(path)
    assert len(validate_query("x" * MAX_QUERY_CHARACTERS)) == MAX_QUERY_CHARACTERS
    path.write_text("net\u2028margin\x0b?\r\nnext\x85line\r\n", encoding="utf-8", newline="")
    assert [query.text for query in read_queries(path)] == ["net\u2028margin\x0b?", "next\x85line"]
