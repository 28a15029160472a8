"""Targets on disk, stored as they are computed: an interrupted calibration goes on where it stopped.

One line of JSON per page: its id and the margin, the likelihood or both of every query run over it, or the
query the model wrote for it. The first line names the model; a file of another model, prompt or pixel budget
is begun anew. A last line that was not written to its end is dropped.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from ridgerank.atomic import say_what_cannot_be_written
from ridgerank.lineage import Lineage
from ridgerank.records import Target

FILE_NAME = "margins.jsonl"
_FIELDS: Mapping[Target, str] = {"margin": "margins", "likelihood": "likelihoods"}
"""The field of a line that holds each target."""


class TargetCache:
    """Targets by query and page, in memory and in a file that only grows."""

    def __init__(
        self, folder: Path, lineage: Lineage | None, *, file_name: str = FILE_NAME, teacher: str = ""
    ) -> None:
        self._path = folder / file_name
        self._header = {"teacher": teacher if lineage is None else lineage.teacher_fingerprint()}
        self._targets: dict[tuple[Target, str, str], float] = {}
        self._written_queries: dict[str, str] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self._read()

    @classmethod
    def of_teacher(cls, folder: Path, teacher: str) -> Self:
        """The scores of a teacher other than the store's model, in a file of its own; kept as margins."""
        return cls(folder, None, file_name=f"teacher-{_digest(teacher)[:12]}.jsonl", teacher=teacher)

    def __len__(self) -> int:
        return len(self._targets)

    def margin(self, query: str, page_id: str) -> float | None:
        """The margin of a query over a page, None where it was never computed."""
        return self.target("margin", query, page_id)

    def target(self, target: Target, query: str, page_id: str) -> float | None:
        """One target of a query over a page, None where it was never computed."""
        return self._targets.get((target, _digest(query), page_id))

    def written_query(self, page_id: str) -> str | None:
        """The query the model wrote for a page, None where it was not asked for one."""
        return self._written_queries.get(page_id)

    def add(self, values: Mapping[str, Mapping[str, float]], *, target: Target = "margin") -> None:
        """Keep values of one target: page id → text of the query → value."""
        rows = [
            {
                "page_id": page_id,
                _FIELDS[target]: {_digest(query): value for query, value in by_query.items()},
            }
            for page_id, by_query in values.items()
        ]
        self._append(rows)
        for row in rows:
            self._add_row(row)

    def add_written_query(self, page_id: str, query: str) -> None:
        """Keep the query the model wrote for a page, empty where it wrote none."""
        self._append([{"page_id": page_id, "written": query}])
        self._written_queries[page_id] = query

    def _append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        with say_what_cannot_be_written(self._path), self._path.open("ab") as file:
            file.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())
            file.flush()
            os.fsync(file.fileno())

    def _read(self) -> None:
        content = self._path.read_bytes() if self._path.exists() else b""
        lines = content[: content.rfind(b"\n") + 1].splitlines()
        with say_what_cannot_be_written(self._path):
            if not lines or _parse(lines[0]) != self._header:
                self._path.write_bytes((json.dumps(self._header) + "\n").encode())
                return
            if not content.endswith(b"\n"):
                with self._path.open("r+b") as file:
                    file.truncate(content.rfind(b"\n") + 1)
        for line in lines[1:]:
            row = _parse(line)
            if isinstance(row, dict) and "page_id" in row:  # else the line is damaged: its page is read again
                self._add_row(row)

    def _add_row(self, row: Mapping[str, Any]) -> None:
        page_id = row["page_id"]
        if "written" in row:
            self._written_queries[page_id] = row["written"]
        for target, name in _FIELDS.items():
            for query, value in row.get(name, {}).items():
                self._targets[target, query, page_id] = value


def _parse(line: bytes) -> Any:  # noqa: ANN401 (whatever JSON holds)
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _digest(query: str) -> str:
    return hashlib.blake2b(query.encode(), digest_size=16).hexdigest()
