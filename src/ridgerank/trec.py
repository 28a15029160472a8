"""Files of queries, and TREC files, runs and judgements: read, checked and written."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TextIO, TypeAlias, TypeVar

import numpy as np

from ridgerank.errors import QueryError, RidgeRankError, RunFileError, ScoreError
from ridgerank.ragged import Floats, Ints, Ragged, finite_scores
from ridgerank.records import Query, describe_json, validate_query

Qrels: TypeAlias = Mapping[str, Mapping[str, int]]
"""Graded relevance: query id → page id → grade."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Scored pages of many queries, best first; equal scores by page id, last first, as trec_eval does."""

    queries: tuple[str, ...]
    vocabulary: tuple[str, ...]
    """All page ids of the run, sorted: the order of codes is the order of ids."""
    lists: Ragged
    codes: Ints
    scores: Floats

    @classmethod
    def of_columns(cls, queries: Sequence[str], pages: Sequence[str], scores: Iterable[float]) -> Self:
        """A run from three columns in any order; a page twice under one query is refused."""
        query_numbers: dict[str, int] = {}
        rows = np.fromiter(
            (query_numbers.setdefault(query, len(query_numbers)) for query in queries), np.int64, len(queries)
        )
        vocabulary = tuple(sorted(set(pages)))
        code_of = {page: code for code, page in enumerate(vocabulary)}
        codes = np.fromiter((code_of[page] for page in pages), np.int64, len(pages))
        values = np.fromiter(scores, np.float64, len(pages))
        key = rows * max(len(vocabulary), 1) + codes
        ascending = np.sort(key)
        repeated = ascending[1:][ascending[1:] == ascending[:-1]]
        if len(repeated):
            number, page = divmod(int(repeated[0]), len(vocabulary))
            query = list(query_numbers)[number]
            raise ScoreError(f"page {vocabulary[page]!r} stands twice under query {query!r}; keep one score")
        lists = Ragged.of_lengths(np.bincount(rows, minlength=len(query_numbers)).tolist())
        order = np.lexsort((-codes, -values, rows))
        finite = finite_scores(values[order], lists, what="run")
        return cls(tuple(query_numbers), vocabulary, lists, codes[order], finite)

    @classmethod
    def of_dict(cls, scored: Mapping[str, Mapping[str, float]]) -> Self:
        """A run from query id → page id → score; queries without pages are left out."""
        columns = [(query, page, score) for query, pages in scored.items() for page, score in pages.items()]
        return cls.of_columns([c[0] for c in columns], [c[1] for c in columns], (c[2] for c in columns))

    def __len__(self) -> int:
        return len(self.queries)

    def pages(self, query_number: int) -> list[str]:
        """The page ids of one query, best first."""
        start, end = self.lists.offsets[query_number : query_number + 2]
        return [self.vocabulary[code] for code in self.codes[start:end].tolist()]

    def rows(self) -> Iterator[tuple[str, str, int, float]]:
        """(query id, page id, rank from 1, score), query by query, best first."""
        ranks = (self.lists.positions() + 1).tolist()
        numbers = self.lists.list_numbers().tolist()
        codes, scores = self.codes.tolist(), self.scores.tolist()
        for number, code, rank, score in zip(numbers, codes, ranks, scores, strict=True):
            yield self.queries[number], self.vocabulary[code], rank, score

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Query id → page id → score."""
        scored: dict[str, dict[str, float]] = {query: {} for query in self.queries}
        for query, page, _, score in self.rows():
            scored[query][page] = score
        return scored


Number = TypeVar("Number", int, float)

RUN_COLUMNS = "query Q0 page rank score tag"
QRELS_COLUMNS = "query 0 page grade"
_MOST_GRADE = 1000
"""The gain of a grade is a power of two in some measures."""


def read_run(path: Path) -> Run:
    """Read a TREC run; pages are ordered by score, whatever the file's rank column says."""
    queries: list[str] = []
    pages: list[str] = []
    scores: list[float] = []
    first_line: dict[tuple[str, str], int] = {}
    for number, fields in _read_fields(path, RUN_COLUMNS):
        query, _, page, _, score_text, _ = fields
        score = _parse_number(score_text, float, path, number, "score")
        if not math.isfinite(score):
            raise RunFileError(f"{path}, line {number}: score {score_text!r}, expected a finite number")
        earlier = first_line.setdefault((query, page), number)
        if earlier != number:
            raise RunFileError(
                f"{path}, line {number}: page {page!r} already stands under query {query!r} "
                f"in line {earlier}; keep one of the two"
            )
        queries.append(query)
        pages.append(page)
        scores.append(score)
    return Run.of_columns(queries, pages, scores)


def read_qrels(path: Path) -> Qrels:
    """Read TREC qrels; grades are whole numbers, a negative grade counts as not relevant."""
    qrels: dict[str, dict[str, int]] = {}
    for number, (query, _, page, grade_text) in _read_fields(path, QRELS_COLUMNS):
        grade = _parse_number(grade_text, int, path, number, "grade")
        if abs(grade) > _MOST_GRADE:
            raise RunFileError(f"{path}, line {number}: grade {grade:.3g}, expected at most {_MOST_GRADE}")
        grades = qrels.setdefault(query, {})
        if grades.setdefault(page, grade) != grade:
            raise RunFileError(
                f"{path}, line {number}: grade {grade} for page {page!r} under query {query!r}, "
                f"which an earlier line graded {grades[page]}; keep one of the two"
            )
    return qrels


def write_run(run: Run, file: TextIO, *, tag: str = "ridgerank") -> None:
    """Write a run, best page first; scores in the shortest form that reads back as the same number."""
    file.writelines(f"{query} Q0 {page} {rank} {score!r} {tag}\n" for query, page, rank, score in run.rows())


def write_qrels(qrels: Qrels, file: TextIO) -> None:
    """Write graded relevance."""
    for query, grades in qrels.items():
        file.writelines(f"{query} 0 {page} {grade}\n" for page, grade in grades.items())


def read_text(path: Path, expected: str, kind: type[RidgeRankError] = RunFileError) -> str:
    """The text of a file that a user names; the error, of this kind, says what is `expected`."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        found = f"not UTF-8 text ({error.reason} at byte {error.start})"
        raise kind(f"{path}: {found}; expected {expected}") from error
    except OSError as error:
        raise kind(f"{path}: {error.strerror or error}; expected {expected}") from error


def _read_fields(path: Path, columns: str) -> Iterator[tuple[int, list[str]]]:
    field_count, empty = len(columns.split()), True
    for number, line in enumerate(read_text(path, "a TREC file").split("\n"), start=1):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != field_count:
            raise RunFileError(
                f"{path}, line {number}: {len(fields)} fields, expected {field_count} ({columns})"
            )
        empty = False
        yield number, fields
    if empty:
        raise RunFileError(f"{path}: no lines, expected at least one with the fields: {columns}")


def parse_plain_number(text: str, number_type: type[Number]) -> Number:
    """A number as every tool reads it: Python alone takes 1_0 and digits of other scripts, too."""
    return number_type(text if text.isascii() and "_" not in text else "")


def _parse_number(text: str, number_type: type[Number], path: Path, number: int, what: str) -> Number:
    try:
        return parse_plain_number(text, number_type)
    except ValueError as error:
        expected = f"expected a {number_type.__name__}"
        raise RunFileError(f"{path}, line {number}: {what} {text!r:.40}, {expected}") from error


def read_queries(path: Path) -> list[Query]:
    """Read JSON lines (`{"query_id": …, "text": …}`, optionally `corpus`) or plain text, one query per line.

    Plain lines are numbered from 1, as `line-1`. Blank lines are skipped; an id that occurs twice is refused.
    """
    # Not `splitlines`: U+2028 and its like stand inside a query, they do not end it.
    lines = read_text(path, "a file of queries", QueryError).split("\n")
    queries = [_parse_line(line, path, number) for number, line in enumerate(lines, start=1) if line.strip()]
    if not queries:
        raise QueryError(f"{path}: no queries, expected at least one line")
    return require_distinct_ids(queries, source=str(path))


def require_distinct_ids(queries: Iterable[Query], *, source: str) -> list[Query]:
    """The queries as a list; an id that two queries share is refused."""
    by_id: dict[str, Query] = {}
    for query in queries:
        if query.query_id in by_id:
            raise QueryError(f"{source}: two queries have the id {query.query_id!r}; give each its own")
        by_id[query.query_id] = query
    return list(by_id.values())


def _parse_line(line: str, path: Path, number: int) -> Query:
    try:
        if not line.lstrip().startswith("{"):
            return Query(f"line-{number}", validate_query(line))
        return _parse_row(json.loads(line))
    except QueryError as error:
        raise QueryError(f"{path}, line {number}: {error}") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is no JSONDecodeError
        reason = f"not JSON ({error}); expected an object with query_id and text"
        raise QueryError(f"{path}, line {number}: {reason}") from error


def _parse_row(row: Mapping[str, Any]) -> Query:
    for name in ("query_id", "text"):
        if name not in row:
            raise QueryError(f"no {name!r}; expected query_id and text")
    query_id, text, corpus = row["query_id"], row["text"], row.get("corpus", "")
    if isinstance(query_id, int) and not isinstance(query_id, bool):
        query_id = str(query_id)
    if not isinstance(query_id, str):
        raise QueryError(f"a query_id that is {describe_json(query_id)}; expected text or a whole number")
    if query_id.split() != [query_id] or not query_id.isprintable():
        raise QueryError(
            f"the query_id {query_id!r}, which a run cannot hold; expected one word without blanks"
        )
    if not isinstance(text, str):
        raise QueryError(f"a text that is {describe_json(text)}; expected text in quotes")
    if not isinstance(corpus, str):
        raise QueryError(f"a corpus that is {describe_json(corpus)}; expected text")
    return Query(query_id, validate_query(text), corpus)
