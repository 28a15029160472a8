"""TREC run and qrels files: the format every retrieval toolkit reads and writes."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO, TypeVar

from ridgerank.errors import RunFileError
from ridgerank.runs.run import Qrels, Run

Number = TypeVar("Number", int, float)

RUN_COLUMNS = "query Q0 page rank score tag"
QRELS_COLUMNS = "query 0 page grade"
_SHOWN_CHARACTERS = 40
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
            raise RunFileError(f"{path}, line {number}: score {score_text!r}, wanted a finite number")
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
            raise RunFileError(f"{path}, line {number}: grade {grade:.3g}, wanted at most {_MOST_GRADE}")
        grades = qrels.setdefault(query, {})
        if grades.setdefault(page, grade) != grade:
            raise RunFileError(
                f"{path}, line {number}: grade {grade} for page {page!r} under query {query!r}, "
                f"which an earlier line graded {grades[page]}; keep one of the two"
            )
    return qrels


def write_run(run: Run, file: TextIO, *, tag: str) -> None:
    """Write a run, best page first; scores in the shortest form that reads back as the same number."""
    file.writelines(f"{query} Q0 {page} {rank} {score!r} {tag}\n" for query, page, rank, score in run.rows())


def write_qrels(qrels: Qrels, file: TextIO) -> None:
    """Write graded relevance."""
    for query, grades in qrels.items():
        file.writelines(f"{query} 0 {page} {grade}\n" for page, grade in grades.items())


def _read_fields(path: Path, columns: str) -> Iterator[tuple[int, list[str]]]:
    field_count = len(columns.split())
    empty = True
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, fields in _split_lines(file):
                if len(fields) != field_count:
                    raise RunFileError(
                        f"{path}, line {number}: {len(fields)} fields, wanted {field_count} ({columns})"
                    )
                empty = False
                yield number, fields
    except UnicodeDecodeError as error:
        raise RunFileError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    except OSError as error:
        raise RunFileError(f"{path}: {error.strerror or error}; wanted a readable TREC file") from error
    if empty:
        raise RunFileError(f"{path}: no lines, wanted at least one with the fields: {columns}")


def _split_lines(file: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(file, start=1):
        fields = line.split()
        if fields:
            yield number, fields


def parse_plain_number(text: str, number_type: type[Number]) -> Number:
    """A number as every tool reads it: Python alone takes 1_0 and digits of other scripts, too."""
    return number_type(text if text.isascii() and "_" not in text else "")


def _parse_number(text: str, number_type: type[Number], path: Path, number: int, what: str) -> Number:
    try:
        return parse_plain_number(text, number_type)
    except ValueError as error:
        shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
        raise RunFileError(
            f"{path}, line {number}: {what} {shown!r}, wanted a {number_type.__name__}"
        ) from error
