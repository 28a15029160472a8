"""`metadata.jsonl` beside documents: a line per document, `{"document": "report.pdf", "year": 2019}`."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ridgerank.errors import DocumentError

METADATA_FILE = "metadata.jsonl"


def read_metadata(paths: Iterable[str | Path]) -> dict[Path, dict[str, Any]]:
    """What the files beside these documents, or in these folders, say: path of a document → its fields.

    `document` is a path relative to the file that names it.
    """
    metadata: dict[Path, dict[str, Any]] = {}
    folders = (Path(path) if Path(path).is_dir() else Path(path).parent for path in paths)
    for folder in dict.fromkeys(folders):
        file = folder / METADATA_FILE
        if not file.is_file():
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8-sig").split("\n"), start=1):
            if line.strip():
                fields = dict(_parse_line(line, f"{file}, line {number}"))
                metadata[_absolute(folder / fields.pop("document"))] = fields
    return metadata


def _absolute(path: Path) -> Path:
    """As `sources.py` writes paths: links are not followed."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def _parse_line(line: str, where: str) -> Mapping[str, Any]:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise DocumentError(f"{where}: no JSON ({error}); wanted an object with document and more") from error
    if not isinstance(fields, dict) or not isinstance(fields.get("document"), str):
        raise DocumentError(f"{where}: {line.strip()[:60]!r}, wanted an object with document and more")
    return fields
