"""Small copies of data sets in the hub's layout: parquet files in a folder for each table."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image


def picture(shade: int, *, kind: str = "PNG") -> bytes:
    """The bytes of a small page image."""
    file = io.BytesIO()
    Image.new("RGB", (20, 28), (shade, 200, 90)).save(file, kind)
    return file.getvalue()


def write_table(folder: Path, table: str, rows: Sequence[Mapping[str, Any]], *, files: int = 1) -> None:
    """A table as the hub keeps it, in one file or several."""
    (folder / table).mkdir(parents=True)
    size = -(-len(rows) // files)
    for number in range(files):
        part = pa.Table.from_pylist(list(rows[number * size : (number + 1) * size]))
        pq.write_table(part, folder / table / f"test-{number:05d}-of-{files:05d}.parquet")


def corpus_rows(shades: Mapping[Any, int], *, column: str = "corpus-id") -> list[dict[str, Any]]:
    """Rows of a corpus: id → shade of its page; images as the hub keeps them."""
    return [
        {column: page, "image": {"bytes": picture(shade, kind="JPEG" if shade % 2 else "PNG"), "path": None}}
        for page, shade in shades.items()
    ]


def write_like_vidore2(folder: Path, *, languages: Sequence[str] = ("english", "french")) -> Path:
    """One set of tables, a language column: two questions in each language over five pages.

    Page 4 is a copy of page 3. The last question of every language has no answer.
    """
    write_table(folder, "corpus", corpus_rows({0: 10, 1: 11, 2: 12, 3: 14, 4: 14}), files=2)
    questions = {"revenue": {0: 2, 1: 1}, "margin": {3: 1, 4: 2}, "nothing": {2: 0}}
    queries: list[dict[str, Any]] = []
    qrels: list[dict[str, Any]] = []
    for language in languages:
        for question, grades in questions.items():
            number = len(queries)
            queries.append({"query-id": number, "query": f"{question} {language}", "language": language})
            qrels += [{"query-id": number, "corpus-id": page, "score": n} for page, n in grades.items()]
    write_table(folder, "queries", queries)
    write_table(folder, "qrels", qrels)
    return folder


def write_like_vidore3(folder: Path, *, languages: Sequence[str] = ("english", "french")) -> Path:
    """A set of tables for each language; the same ids stand in all of them."""
    for language in languages:
        write_table(folder, f"{language}-corpus", corpus_rows({"p/0": 20, "p/1": 21}, column="id"))
        write_table(
            folder,
            f"{language}-queries",
            [{"language": language, "id": f"q{n}", "text": f"{n} in {language}"} for n in range(3)],
        )
        write_table(
            folder,
            f"{language}-qrels",
            [{"query-id": f"q{n}", "corpus-id": f"p/{n % 2}", "score": 1 + n % 2} for n in range(3)],
        )
    return folder
