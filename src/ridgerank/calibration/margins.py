"""Teacher margins on disk, kept as they are made: an interrupted calibration goes on where it stopped.

One line of JSON a page: its id and the margin of every query asked of it, or the query the model wrote for
it. The first line says which model they are of; a file of another model, prompt or pixel budget is begun
anew. A line that a kill cut short is dropped.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ridgerank.lineage import Lineage, fingerprint

FILE_NAME = "margins.jsonl"


class MarginCache:
    """Margins by query and page, in memory and in a file that only grows."""

    def __init__(self, folder: Path, lineage: Lineage) -> None:
        self._path = folder / FILE_NAME
        self._header = {"teacher": _teacher(lineage)}
        self._margins: dict[tuple[str, str], float] = {}
        self._written: dict[str, str] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self._read()

    def __len__(self) -> int:
        return len(self._margins)

    def margin(self, query: str, page_id: str) -> float | None:
        """The margin of a query over a page, None where it was never taken."""
        return self._margins.get((_digest(query), page_id))

    def written(self, page_id: str) -> str | None:
        """The query the model wrote for a page, None where it was never asked."""
        return self._written.get(page_id)

    def add(self, margins: Mapping[str, Mapping[str, float]]) -> None:
        """Keep margins: page id → text of the query → margin."""
        rows = [
            {"page_id": page_id, "margins": {_digest(query): margin for query, margin in own.items()}}
            for page_id, own in margins.items()
        ]
        self._append(rows)
        for row in rows:
            self._take(row)

    def add_written(self, page_id: str, query: str) -> None:
        """Keep the query the model wrote for a page, empty if it would not."""
        self._append([{"page_id": page_id, "written": query}])
        self._written[page_id] = query

    def _append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        with self._path.open("ab") as file:
            file.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())
            file.flush()
            os.fsync(file.fileno())

    def _read(self) -> None:
        content = self._path.read_bytes() if self._path.exists() else b""
        lines = content[: content.rfind(b"\n") + 1].splitlines()
        if not lines or json.loads(lines[0]) != self._header:
            self._path.write_bytes((json.dumps(self._header) + "\n").encode())
            return
        if not content.endswith(b"\n"):
            with self._path.open("r+b") as file:
                file.truncate(content.rfind(b"\n") + 1)
        for line in lines[1:]:
            self._take(json.loads(line))

    def _take(self, row: Mapping[str, Any]) -> None:
        page_id = row["page_id"]
        if "written" in row:
            self._written[page_id] = row["written"]
        for query, margin in row.get("margins", {}).items():
            self._margins[query, page_id] = margin


def _digest(query: str) -> str:
    return hashlib.blake2b(query.encode(), digest_size=16).hexdigest()


def _teacher(lineage: Lineage) -> str:
    """What full-depth margins depend on: the model and what it is shown, not how pages are stored."""
    parts = ("family", "weights", "transformers", "processor", "prompt")
    return fingerprint({part: getattr(lineage, part) for part in parts})
