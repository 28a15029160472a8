"""A published data set: rows of its tables, from the hub or a folder in its layout, and page images as files.

A data set is a set of tables, each in a folder of its name: `queries/test-00000-of-00001.parquet`. Data sets
with one table per language call them `english-queries`. Rows stream; no table is ever held. A list beside
the page files says which page is which file; pages with the same bytes share one.
"""

import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, UnidentifiedImageError

from ridgerank.atomic import replace_file, replace_text_file
from ridgerank.errors import DatasetError, ExtraMissing
from ridgerank.trec import Qrels

SPLIT = "test"
_ROWS_AT_ONCE = 16
"""Rows of a local table in memory; a page image is some megabytes."""


@dataclass(frozen=True, slots=True)
class HubDataset:
    """Where a data set is, and which state of it."""

    repository: str
    revision: str
    """Commit of the data set on the hub: what it held then is what is measured."""

    @property
    def name(self) -> str:
        """The last part of the repository, which is also its folder in a local copy."""
        return self.repository.rpartition("/")[2]


class DatasetTables:
    """The tables of one data set."""

    def __init__(self, hub_dataset: HubDataset, local: Path | None) -> None:
        """Read from the hub, or from the folder of this data set's name under `local`."""
        self.hub_dataset = hub_dataset
        self._folder = None if local is None else local / hub_dataset.name
        if self._folder is not None and not self._folder.is_dir():
            raise DatasetError(
                f"{self._folder}: no such folder; wanted a copy of {hub_dataset.repository} in the hub's "
                "layout (corpus/, queries/ and qrels/ with parquet files)"
            )

    def names(self) -> list[str]:
        """List the tables there are."""
        if self._folder is not None:
            return sorted({path.parent.name for path in self._folder.glob("*/*.parquet")})
        datasets = _datasets()
        with _explain_errors(self.hub_dataset):
            names: list[str] = datasets.get_dataset_config_names(
                self.hub_dataset.repository, revision=self.hub_dataset.revision
            )
        return sorted(names)

    def rows(self, table: str) -> Iterator[Mapping[str, Any]]:
        """Read a table row by row; an image comes as the bytes of its file."""
        with _explain_errors(self.hub_dataset):
            yield from self._local(self._folder / table) if self._folder is not None else self._online(table)

    def _local(self, folder: Path) -> Iterator[Mapping[str, Any]]:
        from pyarrow.parquet import ParquetFile

        files = sorted(folder.glob(f"{SPLIT}*.parquet"))
        if not files:
            raise DatasetError(f"{folder}: no {SPLIT}*.parquet; wanted the table's files")
        for path in files:
            with ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
                    yield from batch.to_pylist()

    def _online(self, table: str) -> Iterator[Mapping[str, Any]]:
        datasets = _datasets()
        # The download is kept by the library, so that an interrupted run goes on; rows stay on disk.
        table_rows = datasets.load_dataset(
            self.hub_dataset.repository, table, split=SPLIT, revision=self.hub_dataset.revision
        )
        if "image" in table_rows.features:
            table_rows = table_rows.cast_column("image", datasets.Image(decode=False))
        yield from table_rows


@contextmanager
def _explain_errors(hub_dataset: HubDataset) -> Iterator[None]:
    """Turn an error of the library into one that says which data set, and what to do."""
    try:
        yield
    except (OSError, ValueError) as error:
        first_line = str(error).strip().partition("\n")[0]
        raise DatasetError(
            f"cannot read {hub_dataset.repository} at {hub_dataset.revision}: {first_line}. Check the "
            "connection, or download it once and say where it is"
        ) from error


def _datasets() -> Any:  # noqa: ANN401 (untyped)
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise ExtraMissing("ViDoRe needs the package datasets: `pip install 'ridgerank[vidore]'`") from error
    return datasets


_LIST = "pages.json"
_SUFFIXES = {"PNG": ".png", "JPEG": ".jpg", "WEBP": ".webp", "TIFF": ".tif"}


class PageFiles:
    """The pages of one corpus on disk: `folder` holds nothing but their files."""

    def __init__(self, folder: Path, *, source: str) -> None:
        """Open what is there; files of another state of the data set are refused."""
        self.folder = folder / "documents"
        self._list = folder / _LIST
        self._source = source
        self._file_of: dict[str, str] = {}
        self._first: dict[str, str] = {}
        """Digest of a page's bytes → the file that has them."""
        self.is_complete = self._list.exists()
        if self.is_complete:
            self._read()
        self.folder.mkdir(parents=True, exist_ok=True)

    def add(self, page: str, content: bytes) -> None:
        """Write one page, unless it is there."""
        if page in self._file_of:
            raise DatasetError(f"{self._source}: two pages have the id {page!r}")
        digest = hashlib.blake2b(content, digest_size=16).hexdigest()
        name = self._first.get(digest)
        if name is None:
            name = self._first[digest] = f"{_file_stem(page)}{self._suffix(page, content)}"
            path = self.folder / name
            if not path.exists() or path.stat().st_size != len(content):
                with replace_file(path) as scratch:
                    scratch.write_bytes(content)
        self._file_of[page] = name

    def finish(self) -> None:
        """Say that every page is there."""
        if not self._file_of:
            raise DatasetError(f"{self._source}: its corpus has no pages")
        with replace_text_file(self._list) as file:
            json.dump({"source": self._source, "pages": self._file_of}, file)
        self.is_complete = True

    def rename_pages(self, qrels: Qrels) -> dict[str, dict[str, int]]:
        """The judgements with pages by reference; of pages that are one, the best grade counts."""
        renamed: dict[str, dict[str, int]] = {}
        for query, grades in qrels.items():
            by_reference = renamed.setdefault(query, {})
            for page, grade in grades.items():
                if page not in self._file_of:
                    raise DatasetError(
                        f"{self._source}: query {query!r} is judged on page {page!r}, which the corpus lacks"
                    )
                reference = f"{self._file_of[page]}#1"
                by_reference[reference] = max(grade, by_reference.get(reference, grade))
        return renamed

    def note(self, label: str) -> str:
        """Say how many pages are copies of others; empty where none is."""
        copies = len(self._file_of) - len(set(self._file_of.values()))
        return (
            f"{label}: {copies} of {len(self._file_of):,} pages are copies and count as one" if copies else ""
        )

    def _read(self) -> None:
        content: Mapping[str, Any] = json.loads(self._list.read_text(encoding="utf-8"))
        if content["source"] != self._source:
            raise DatasetError(
                f"{self._list.parent} holds pages of {content['source']}, not of {self._source}; use another "
                "work folder, or remove it"
            )
        self._file_of = dict(content["pages"])
        missing = sorted(name for name in set(self._file_of.values()) if not (self.folder / name).exists())
        if missing:
            # Files were removed: the corpus is written again, which costs only what is missing.
            self.is_complete, self._file_of = False, {}

    def _suffix(self, page: str, content: bytes) -> str:
        try:
            with Image.open(io.BytesIO(content)) as image:
                kind = image.format or ""
        except UnidentifiedImageError as error:
            raise DatasetError(f"{self._source}: page {page!r} is no image ({error})") from error
        if kind not in _SUFFIXES:
            raise DatasetError(f"{self._source}: page {page!r} is a {kind}; wanted {', '.join(_SUFFIXES)}")
        return _SUFFIXES[kind]


def _file_stem(page: str) -> str:
    """A file name of a page's id: what is no letter, digit, dot, dash or underscore becomes its code."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else f"%{ord(c):02x}" for c in page)
