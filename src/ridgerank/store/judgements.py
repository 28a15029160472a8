"""Judgements of pages that people gave in the browser, beside a local store.

`judgements.jsonl` is the record: one line per judgement, with who and when, only ever appended to; taking one
back is a line, too. `lists.jsonl` has the candidates and scores of each judged query, as they were ranked.
`qrels.trec` and `queries.jsonl` are made from them after every change, for all other tools. Writers take
turns by a lock that the system frees when a process dies; a line that was cut short is skipped.
"""

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median_low
from typing import Any, Self, TypeAlias, TypeVar

from ridgerank.atomic import lock_file, replace_text_file
from ridgerank.errors import StoreError
from ridgerank.records import ScoredPages
from ridgerank.store import lance_dataset, layout
from ridgerank.trec import Qrels, write_qrels

log = logging.getLogger(__name__)

Parsed = TypeVar("Parsed")
Skipped: TypeAlias = Callable[[Path, int, Exception], None]

GRADES = {"relevant": 2, "partly": 1, "not": 0}
RECORD, LISTS, QRELS, QUERIES = "judgements.jsonl", "lists.jsonl", "qrels.trec", "queries.jsonl"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one person said of one page under one query."""

    query: str
    page_id: str
    reference: str
    grade: int | None
    """2 relevant, 1 partly, 0 not; None takes back what the same person said before."""
    judge: str
    time: str = ""

    @classmethod
    def parse(cls, row: Mapping[str, Any]) -> Self:
        """A line of the record; anything else is a `ValueError`, `TypeError` or `KeyError`."""
        judgement = cls(**row)
        if judgement.grade not in (None, *GRADES.values()) or isinstance(judgement.grade, float | bool):
            raise ValueError(f"a grade {judgement.grade!r:.40}, expected one of {sorted(GRADES.values())}")
        texts = (judgement.query, judgement.page_id, judgement.reference, judgement.judge, judgement.time)
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("expected text in every field but the grade")
        return judgement


class Judgements:
    """The judgements beside one store; any number of threads and processes may use it at once."""

    def __init__(self, uri: str) -> None:
        root = lance_dataset.local_root(uri)
        if root is None:
            raise StoreError(
                f"the page store at {uri} is not on a local disk: judgements cannot be kept beside it; judge "
                "on a local copy"
            )
        self.folder = root / layout.JUDGEMENTS

    def require_writable(self) -> None:
        """Raise where nothing can be written beside the store."""
        try:
            with self._locked():
                pass
        except OSError as error:
            raise StoreError(
                f"judgements cannot be kept in {self.folder} ({error.strerror or error}); make the store "
                "writable for this user, or judge on a copy of it"
            ) from error

    def stamp(self) -> list[tuple[int, int]]:
        """Something that differs once a judgement or a list is added."""
        paths = (self.folder / RECORD, self.folder / LISTS)
        return [(path.stat().st_mtime_ns, path.stat().st_size) if path.exists() else (0, 0) for path in paths]

    def size(self) -> int:
        """The bytes of the record."""
        return self.stamp()[0][1]

    def add(self, judgement: Judgement) -> None:
        """Keep a judgement; it is on disk when this returns."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with self._locked():
            _append(self.folder / RECORD, {**asdict(judgement), "time": now})
            self._write_qrels()

    def add_list(self, query: str, readout_id: str, pages: ScoredPages) -> None:
        """Keep the candidates of a query that is going to be judged, as one readout scored them."""
        with self._locked():
            _append(self.folder / LISTS, {"query": query, "readout_id": readout_id, **asdict(pages)})

    def read(self) -> list[Judgement]:
        """What everyone says now: the last word of each person on each page, in the order first said."""
        last: dict[tuple[str, str, str], Judgement] = {}
        for judgement in _read_lines(self.folder / RECORD, Judgement.parse, _warn):
            last[judgement.query, judgement.page_id, judgement.judge] = judgement
        return [judgement for judgement in last.values() if judgement.grade is not None]

    def read_lists(self, readout_id: str) -> dict[str, ScoredPages]:
        """Query → its candidates, as this readout scored them."""
        rows = _read_lines(self.folder / LISTS, _parse_list, _warn)
        return {query: pages for query, made_by, pages in rows if made_by == readout_id}

    def grades(self) -> dict[str, dict[str, int]]:
        """Query text → page id → grade; where people differ, the median, the lower one of two."""
        return merge_grades(self.read())

    def check(self) -> list[tuple[Path, int, Exception]]:
        """The lines that cannot be read: file, number, and why."""
        odd: list[tuple[Path, int, Exception]] = []
        for name, parse in ((RECORD, Judgement.parse), (LISTS, _parse_list)):
            list(_read_lines(self.folder / name, parse, lambda *line: odd.append(line)))
        return odd

    def _write_qrels(self) -> None:
        judgements = self.read()
        grades = merge_grades(judgements)
        # By the name people and runs use, not by the digest of the page.
        names = {judgement.page_id: judgement.reference for judgement in judgements}
        qrels: Qrels = {
            query_id(query): {names[page_id]: grade for page_id, grade in pages.items()}
            for query, pages in grades.items()
        }
        with replace_text_file(self.folder / QRELS) as file:
            write_qrels(qrels, file)
        with replace_text_file(self.folder / QUERIES) as file:
            for query in grades:
                row = {"query_id": query_id(query), "text": query}
                file.write(f"{json.dumps(row, ensure_ascii=False)}\n")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(exist_ok=True)
        descriptor = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            lock_file(descriptor, wait=True)
            yield
        finally:
            os.close(descriptor)


def merge_grades(judgements: Sequence[Judgement]) -> dict[str, dict[str, int]]:
    """Query text → page id → the grade that stands for all people's."""
    grades: dict[str, dict[str, list[int]]] = {}
    for judgement in judgements:
        if judgement.grade is not None:
            grades.setdefault(judgement.query, {}).setdefault(judgement.page_id, []).append(judgement.grade)
    return {
        query: {page_id: median_low(values) for page_id, values in pages.items()}
        for query, pages in grades.items()
    }


def query_id(query: str) -> str:
    """The id of a query in the qrels: a digest of its text."""
    return f"q-{hashlib.blake2b(query.encode(), digest_size=6).hexdigest()}"


def _parse_list(row: Mapping[str, Any]) -> tuple[str, str, ScoredPages]:
    """Query, readout and candidates in a line of `lists.jsonl`."""
    scores = (tuple(map(float, row[name])) for name in ("retriever", "readout"))
    return str(row["query"]), str(row["readout_id"]), ScoredPages(tuple(row["page_ids"]), *scores)


def _append(path: Path, row: dict[str, Any]) -> None:
    """Add a line that is whole or not there; behind a line that was cut short, a new one begins."""
    line = f"{json.dumps(row, ensure_ascii=False)}\n".encode()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line
        os.write(descriptor, line)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _warn(path: Path, number: int, error: Exception) -> None:
    log.warning("%s, line %d cannot be read and is skipped: %s", path, number, error)


def _read_lines(path: Path, parse: Callable[[dict[str, Any]], Parsed], skipped: Skipped) -> Iterator[Parsed]:
    """Every line of a file but those that were cut short or mean nothing, which `skipped` is told of."""
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                parsed = parse(json.loads(line))
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                skipped(path, number, error)
                continue
            yield parsed
