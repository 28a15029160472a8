"""Reading a store: pages by id or name, and the prefixes of many pages at once."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ridgerank.errors import StoreError
from ridgerank.lineage import Lineage
from ridgerank.store import lance_dataset, layout, reading
from ridgerank.store.catalog import CatalogEntry, open_catalog
from ridgerank.store.lance_dataset import read_shared
from ridgerank.store.layout import PackedPrefix, SharedPositions
from ridgerank.store.page_filter import PageFilter, PageSelection
from ridgerank.store.reading import BlockReader
from ridgerank.store.vector_columns import VectorColumn, VectorOrigin, read_vector_origin, read_vectors

_LABELLED_PAGES = 1000
"""Pages that are looked at for examples of labels."""


_PAGE_COLUMNS = [layout.PAGE_ID, layout.REFERENCES, layout.SOURCE, layout.TEXT, layout.THUMBNAIL]
"""The columns of a `StoredPage`, vectors apart."""


@dataclass(frozen=True, slots=True, eq=False)
class StoredPage:
    """A stored page without its prefix."""

    page_id: str
    references: tuple[str, ...]
    """Every name of this content: `report.pdf#3`, and `copy.pdf#3` where the same page occurs twice."""
    source: str
    """Name of the file the page came from."""
    text: str
    thumbnail: bytes
    """A small encoded image, empty where there is none."""
    vectors: NDArray[np.float16] | None = None
    """(vectors, dim): the retriever's vectors, None until they are stored."""


@dataclass(frozen=True, slots=True, eq=False)
class PageRow:
    """A page to store."""

    page: StoredPage
    prefix: PackedPrefix


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """The size and the lineage of a store."""

    uri: str
    pages: int
    prefix_bytes: int
    fragments: int
    retriever: VectorOrigin | None
    """Whose vectors are stored, if any."""
    lineage: Lineage

    @property
    def bytes_per_page(self) -> float:
        """Mean bytes of a prefix, 0 in an empty store."""
        return self.prefix_bytes / self.pages if self.pages else 0.0


class PageStore:
    """One version of a store, open for reading by any number of threads; a context manager.

    Pages added after it was opened are seen after opening it again.
    """

    def __init__(self, dataset: Any, uri: str, lineage: Lineage, *, mapped: bool) -> None:  # noqa: ANN401
        self.uri = uri
        self.lineage = lineage
        self._dataset = dataset
        self.catalog = open_catalog(dataset, uri)
        self.blocks: BlockReader = reading.choose_reader(dataset, uri, mapped=mapped)
        self.threads = ThreadPoolExecutor(self.blocks.threads, thread_name_prefix="ridgerank-read")

    @classmethod
    def open(cls, store: str | Path, *, lineage: Lineage | None = None, mapped: bool = True) -> Self:
        """Open the store at a path or URL; with `lineage` given, a store of another lineage is refused.

        Unless `mapped`, files are read without mapping them: slower, but the system then does not count
        what it caches of them as this process's memory.
        """
        uri = str(store)
        dataset = lance_dataset.open_dataset(uri)
        if dataset is None:
            raise StoreError(f"no page store at {uri}; make one with `ridgerank index`")
        stored_lineage = lance_dataset.read_lineage(dataset, uri)
        if lineage is not None:
            stored_lineage.require(lineage, artifact=f"the page store at {uri}")
        return cls(dataset, uri, stored_lineage, mapped=mapped)

    def info(self) -> StoreInfo:
        """Count pages and bytes; return them with the lineage."""
        return StoreInfo(
            uri=self.uri,
            pages=len(self),
            prefix_bytes=self.catalog.prefix_nbytes,
            fragments=len(self.fragments()),
            retriever=read_vector_origin(self._dataset),
            lineage=self.lineage,
        )

    @cached_property
    def shared(self) -> SharedPositions | None:
        """The positions before the page, None if pages are stored with them."""
        digest = lance_dataset.read_shared_digest(self._dataset)
        return None if digest is None else read_shared(self.uri, digest)

    @cached_property
    def vectors(self) -> VectorColumn | None:
        """The retriever's vectors, None if no retriever has stored any."""
        origin = read_vector_origin(self._dataset)
        return None if origin is None else VectorColumn(self._dataset, self.uri, origin, self.catalog)

    def texts(self) -> dict[str, str]:
        """Read the text of every page, by page id, in the order stored."""
        return dict(zip(*self._columns([layout.PAGE_ID, layout.TEXT]), strict=True))

    def _columns(self, names: list[str], **options: Any) -> list[list[Any]]:  # noqa: ANN401 (as Lance takes)
        with lance_dataset.wrap_errors(f"reading the page store at {self.uri}"):
            table = self._dataset.to_table(columns=names, **options)
        return [table.column(name).to_pylist() for name in names]

    def select(self, page_filter: PageFilter) -> PageSelection:
        """The pages that a filter lets through; a filter that lets none through is refused."""
        if page_filter.labels and layout.LABELS not in self._dataset.schema.names:
            raise StoreError(
                f"the page store at {self.uri} has no metadata; put metadata.jsonl beside the documents and "
                "index them again: no page is encoded twice"
            )
        condition = page_filter.condition()
        with lance_dataset.wrap_errors(f"filtering the page store at {self.uri}"):
            table = self._dataset.to_table(columns=[layout.PAGE_ID], filter=condition or None)
        if not table.num_rows:
            raise StoreError(
                f"no page of the page store at {self.uri} has {page_filter}; its pages are called as in "
                f"{lance_dataset.shorten(self.references(self.page_ids()[:3])) or 'no document'}"
            )
        return PageSelection(frozenset(table.column(layout.PAGE_ID).to_pylist()), condition)

    def label_examples(self) -> list[str]:
        """A label of each key that the first pages have."""
        if layout.LABELS not in self._dataset.schema.names:
            return []
        [column] = self._columns([layout.LABELS], limit=_LABELLED_PAGES)
        labels: dict[str, str] = {}
        for page_labels in column:
            for label in page_labels or []:
                labels.setdefault(label.partition("=")[0], label)
        return list(labels.values())

    def labels(self) -> dict[str, tuple[str, ...]]:
        """The labels of every page that has any, by page id."""
        if layout.LABELS not in self._dataset.schema.names:
            return {}
        columns = self._columns([layout.PAGE_ID, layout.LABELS], filter=f"{layout.LABELS} IS NOT NULL")
        return {page_id: tuple(labels) for page_id, labels in zip(*columns, strict=True) if labels}

    def page_ids(self) -> list[str]:
        """List every page, in the order stored."""
        return self.catalog.page_ids()

    def lookup(self, name: str) -> str | None:
        """Look up the page id behind a page id or an exact reference, None if there is no such page."""
        return self.lookup_many([name]).get(name)

    def lookup_many(self, names: Iterable[str]) -> dict[str, str]:
        """`lookup` for many names at once: name → page id, names of no page left out."""
        return self.catalog.resolve(names)

    def find(self, name: str) -> str:
        """Look up the page id behind a page id or an exact reference such as `report.pdf#3`."""
        page_id = self.lookup(name)
        if page_id is None:
            raise StoreError(f"no page {name!r} among the {len(self)} of the page store at {self.uri}")
        return page_id

    def reference(self, page_id: str) -> str:
        """The first name of a stored page, or its id where it has none left."""
        return self.references([page_id])[0]

    def references(self, page_ids: Sequence[str]) -> list[str]:
        """`reference` for many pages at once."""
        return [(*entry.references, entry.page_id)[0] for entry in self.catalog.entries(page_ids)]

    def pages(self, page_ids: Sequence[str], *, vectors: bool = False) -> list[StoredPage]:
        """Read pages without their prefixes, in the order of `page_ids`."""
        has_vectors = vectors and layout.VECTORS in self._dataset.schema.names
        columns = [*_PAGE_COLUMNS, *([layout.VECTORS] if has_vectors else [])]
        table = self.catalog.table(page_ids, columns)
        page_vectors = read_vectors(table) if has_vectors else [None] * table.num_rows
        return [
            StoredPage(
                page_id=row[layout.PAGE_ID],
                references=tuple(row[layout.REFERENCES]),
                source=row[layout.SOURCE],
                text=row[layout.TEXT],
                thumbnail=row[layout.THUMBNAIL],
                vectors=vectors_of_page,
            )
            for row, vectors_of_page in zip(
                table.select(_PAGE_COLUMNS).to_pylist(), page_vectors, strict=True
            )
        ]

    def prefix_nbytes(self, page_ids: Sequence[str]) -> int:
        """The bytes that the prefixes of these pages take in memory."""
        return sum(entry.nbytes for entry in self.catalog.entries(page_ids))

    def read_prefixes(
        self, page_ids: Sequence[str], *, out: NDArray[np.uint8] | None = None
    ) -> list[PackedPrefix]:
        """Read the prefixes of pages, as views on `out`, or each on memory of its own where none is given.

        `out` is one-dimensional, of at least `prefix_nbytes` bytes; it is used from its start.
        """
        entries, buffers = self.buffers(page_ids, out)
        reading.read_whole(self.blocks, entries, buffers, self.threads)
        return [layout.unpack(buffer, shared=self.shared) for buffer in buffers]

    def buffers(
        self, page_ids: Sequence[str], out: NDArray[np.uint8] | None
    ) -> tuple[list[CatalogEntry], list[NDArray[np.uint8]]]:
        """The entries of pages, and a piece of memory for the prefix of each: of `out`, or new."""
        entries = self.catalog.entries(page_ids)
        if out is None:
            return entries, [np.empty(entry.nbytes, dtype=np.uint8) for entry in entries]
        ends = list(accumulate(entry.nbytes for entry in entries))
        if ends and out.size < ends[-1]:
            raise StoreError(f"prefixes of {ends[-1]} bytes for a buffer of {out.size}; allocate more")
        return entries, [out[end - entry.nbytes : end] for entry, end in zip(entries, ends, strict=True)]

    def probe(self) -> None:
        """Read the first page from where it lies; an error says why the store cannot be read now."""
        with lance_dataset.wrap_errors(f"reading the page store at {self.uri}"):
            first = self._dataset.head(1, columns=[layout.PAGE_ID]).column(layout.PAGE_ID).to_pylist()
        self.read_prefixes(first)

    def is_current(self) -> bool:
        """Whether nobody has written to the store since it was opened; what is open stays as it was."""
        with lance_dataset.wrap_errors(f"reading the page store at {self.uri}"):
            return bool(self._dataset.version == self._dataset.latest_version)

    def fragments(self) -> list[Any]:
        """List the pieces Lance keeps the rows in, each readable on its own."""
        return list(self._dataset.get_fragments())

    def close(self) -> None:
        """Stop the reading threads."""
        self.threads.shutdown()

    def __len__(self) -> int:
        return int(self._dataset.count_rows())

    def __contains__(self, page_id: object) -> bool:
        return isinstance(page_id, str) and self.lookup(page_id) == page_id

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
