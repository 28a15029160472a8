"""Page images of a corpus as files, written once; an interrupted run continues where it stopped.

A list beside the files says which page is which file. Pages with the same bytes count as one page in every
later stage, so they share one file, and their judgements are merged.
"""

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image, UnidentifiedImageError

from ridgerank.atomic import replace_file, replace_text_file
from ridgerank.errors import DatasetError
from ridgerank.trec import Qrels

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
