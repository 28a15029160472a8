"""Reading a store: pages by id or name, and the prefixes of many pages at once.

The catalog leads from a page id or name to an entry, which says where the prefix lies. A small store is
listed whole, on first use. A large store has Lance indices over page ids and names
(`StoreWriter.index_pages`): there single pages are looked up and the last ones cached, so that neither memory
nor the time to open grows with the store.
"""

import logging
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ridgerank.errors import StoreError, UnreadablePages
from ridgerank.lineage import Lineage
from ridgerank.store import lance_dataset, layout, reading
from ridgerank.store.lance_dataset import read_basis
from ridgerank.store.layout import Basis, PackedPrefix
from ridgerank.store.page_filter import PageFilter, PageSelection
from ridgerank.store.vector_columns import VectorColumn, VectorOrigin, read_vector_origin, read_vectors

log = logging.getLogger(__name__)

CACHED_ENTRIES = 65_536
"""Entries of a large store kept in memory, the most recently used: some 40 MB."""
_IDS_PER_FILTER = 1000
_INDEXED_COLUMNS = (layout.PAGE_ID, layout.REFERENCES)


class CatalogEntry(NamedTuple):
    """A page of a store, without its content."""

    page_id: str
    references: tuple[str, ...]
    positions: int
    """How many positions its prefix holds."""
    nbytes: int
    """Bytes of its prefix; 0 if it has none yet."""
    checksum: int
    """Of its prefix."""
    address: int
    """Lance's address of the row, in this version of the store."""


class Catalog:
    """The pages of one version of a store, listed on first use; for any number of threads."""

    def __init__(self, dataset: Any, uri: str) -> None:  # noqa: ANN401
        self._dataset = dataset
        self._uri = uri

    def entries(self, page_ids: Sequence[str]) -> list[CatalogEntry]:
        """The entries of pages; pages that are missing are named in the error."""
        return [self._entries[row] for row in self._rows(page_ids)]

    def resolve(self, names: Iterable[str]) -> dict[str, str]:
        """Page id behind each page id or exact reference; names of no page are left out."""
        page_ids = {
            name: name if name in self._row_of else self._page_of_reference.get(name)
            for name in dict.fromkeys(names)
        }
        return {name: page_id for name, page_id in page_ids.items() if page_id is not None}

    def table(self, page_ids: Sequence[str], columns: Sequence[str]) -> Any:  # noqa: ANN401
        """Columns of pages, in the order of `page_ids`."""
        rows = self._rows(page_ids)
        with lance_dataset.wrap_errors(f"reading the page store at {self._uri}"):
            return self._dataset.take(rows, columns=list(columns))

    def page_ids(self) -> list[str]:
        """Every page, in the order stored."""
        return list(self._row_of)

    @property
    def prefix_nbytes(self) -> int:
        """Bytes of all prefixes together."""
        return sum(entry.nbytes for entry in self._entries)

    def _rows(self, page_ids: Sequence[str]) -> list[int]:
        _require_all(page_ids, self._row_of, self._uri)
        return [self._row_of[page_id] for page_id in page_ids]

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {entry.page_id: row for row, entry in enumerate(self._entries)}

    @cached_property
    def _page_of_reference(self) -> dict[str, str]:
        return {name: entry.page_id for entry in self._entries for name in entry.references}

    @cached_property
    def _entries(self) -> list[CatalogEntry]:
        with lance_dataset.wrap_errors(f"reading the page store at {self._uri}"):
            return _read_entries(self._dataset.to_table(columns=_ENTRY_COLUMNS, with_row_address=True))


class IndexedCatalog(Catalog):
    """The pages of a large store, each looked up when it is needed; the last ones are cached."""

    def __init__(self, dataset: Any, uri: str, *, cached_entries: int = CACHED_ENTRIES) -> None:  # noqa: ANN401
        super().__init__(dataset, uri)
        self._entry_cache: reading.ByteLRU[str, CatalogEntry] = reading.ByteLRU(
            cached_entries, count_bytes=lambda _: 1
        )
        self._name_cache: reading.ByteLRU[str, str] = reading.ByteLRU(cached_entries, count_bytes=lambda _: 1)

    def entries(self, page_ids: Sequence[str]) -> list[CatalogEntry]:
        """The entries of pages; pages that are missing are named in the error."""
        entries = self._look_up(page_ids)
        _require_all(page_ids, entries, self._uri)
        return [entries[page_id] for page_id in page_ids]

    def resolve(self, names: Iterable[str]) -> dict[str, str]:
        """Page id behind each page id or exact reference; names of no page are left out."""
        distinct_names = list(dict.fromkeys(names))
        cached = {name: self._name_cache.get(name) for name in distinct_names}
        resolved = {name: page_id for name, page_id in cached.items() if page_id is not None}
        uncached = [name for name in distinct_names if name not in resolved]
        resolved |= {
            page_id: page_id for page_id in self._look_up([name for name in uncached if _is_id(name)])
        }
        for batch in _batches([name for name in uncached if name not in resolved]):
            entries = self._select(f"array_has_any({layout.REFERENCES}, make_array({_quoted(batch)}))")
            page_of = {name: entry.page_id for entry in entries for name in entry.references}
            resolved |= {name: page_of[name] for name in batch if name in page_of}
        for name in uncached:
            if name in resolved and not _is_id(name):
                self._name_cache.put(name, resolved[name])
        return resolved

    def table(self, page_ids: Sequence[str], columns: Sequence[str]) -> Any:  # noqa: ANN401
        """Columns of pages, in the order of `page_ids`."""
        distinct_ids = list(dict.fromkeys(page_ids))
        with lance_dataset.wrap_errors(f"reading the page store at {self._uri}"):
            parts = [
                self._dataset.to_table(columns=list(columns), filter=ids_filter(batch))
                for batch in _batches(distinct_ids)
            ]
            table = pa.concat_tables(parts) if parts else self._dataset.schema.empty_table().select(columns)
        row_of = {page_id: row for row, page_id in enumerate(table.column(layout.PAGE_ID).to_pylist())}
        _require_all(page_ids, row_of, self._uri)
        return table.take(pa.array([row_of[page_id] for page_id in page_ids], pa.int64()))

    def page_ids(self) -> list[str]:
        """Every page, in the order stored."""
        with lance_dataset.wrap_errors(f"reading the page store at {self._uri}"):
            table = self._dataset.to_table(columns=[layout.PAGE_ID])
        page_ids: list[str] = table.column(layout.PAGE_ID).to_pylist()
        return page_ids

    @property
    def prefix_nbytes(self) -> int:
        """Bytes of all prefixes together."""
        with lance_dataset.wrap_errors(f"reading the page store at {self._uri}"):
            table = self._dataset.to_table(columns=[layout.PREFIX_BYTES])
            return sum(table.column(layout.PREFIX_BYTES).to_pylist())

    def _look_up(self, page_ids: Sequence[str]) -> dict[str, CatalogEntry]:
        cached = {page_id: self._entry_cache.get(page_id) for page_id in page_ids}
        entries = {page_id: entry for page_id, entry in cached.items() if entry is not None}
        for batch in _batches([page_id for page_id in dict.fromkeys(page_ids) if page_id not in entries]):
            entries |= {entry.page_id: entry for entry in self._select(ids_filter(batch))}
        return entries

    def _select(self, condition: str) -> list[CatalogEntry]:
        with lance_dataset.wrap_errors(f"looking up pages of the page store at {self._uri}"):
            table = self._dataset.to_table(columns=_ENTRY_COLUMNS, filter=condition, with_row_address=True)
            entries = _read_entries(table)
        for entry in entries:
            self._entry_cache.put(entry.page_id, entry)
        return entries


def open_catalog(dataset: Any, uri: str) -> Catalog:  # noqa: ANN401 (Lance is untyped)
    """An `IndexedCatalog` if the pages are indexed, else one that lists them."""
    return IndexedCatalog(dataset, uri) if has_page_index(dataset) else Catalog(dataset, uri)


def has_page_index(dataset: Any) -> bool:  # noqa: ANN401
    """Whether page ids and names can be looked up without listing them all."""
    fields = {name for index in dataset.describe_indices() for name in index.field_names}
    return set(_INDEXED_COLUMNS) <= fields


_ENTRY_COLUMNS = [
    layout.PAGE_ID,
    layout.REFERENCES,
    layout.POSITIONS,
    layout.PREFIX_BYTES,
    layout.PREFIX_CHECKSUM,
]


def _read_entries(table: Any) -> list[CatalogEntry]:  # noqa: ANN401
    page_ids, references, *numbers = (
        table.column(name).to_pylist() for name in (*_ENTRY_COLUMNS, "_rowaddr")
    )
    return [
        CatalogEntry(page_id, tuple(names or ()), *of_page)
        for page_id, names, *of_page in zip(page_ids, references, *numbers, strict=True)
    ]


def _require_all(page_ids: Iterable[str], stored: Container[str], uri: str) -> None:
    missing = [page_id for page_id in page_ids if page_id not in stored]
    if missing:
        raise StoreError(
            f"pages not in the page store at {uri}: {lance_dataset.shorten(missing)}; index them first"
        )


def _is_id(name: str) -> bool:
    """Whether a name may be a page id: a 256-bit digest in hex."""
    return len(name) == 64 and all(character in "0123456789abcdef" for character in name)


def ids_filter(page_ids: Sequence[str]) -> str:
    """Pages as a condition in Lance's SQL."""
    return f"{layout.PAGE_ID} IN ({_quoted(page_ids)})"


def _quoted(names: Sequence[str]) -> str:
    return ", ".join("'" + name.replace("'", "''") + "'" for name in names)


def _batches(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), _IDS_PER_FILTER):
        yield names[start : start + _IDS_PER_FILTER]


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
    prefix: PackedPrefix | None
    """None leaves the page pending: it can be found, and is encoded by the next indexing."""


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """The size and the lineage of a store."""

    uri: str
    pages: int
    prefix_bytes: int
    cached_bytes_per_page: float
    """Mean bytes of a prefix in memory, 0 in an empty store."""
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

    def __init__(self, dataset: Any, uri: str, lineage: Lineage) -> None:  # noqa: ANN401
        self.uri = uri
        self.lineage = lineage
        self._dataset = dataset
        self.catalog = open_catalog(dataset, uri)
        self.unreadable: dict[str, str] = {}
        """Pages that were found to be damaged or not encoded yet, and why the model cannot score them."""

    @classmethod
    def open(cls, store: str | Path, *, lineage: Lineage | None = None) -> Self:
        """Open the store at a path or URL; with `lineage` given, a store of another lineage is refused."""
        uri = str(store)
        dataset = lance_dataset.open_dataset(uri)
        if dataset is None:
            raise StoreError(f"no page store at {uri}; make one with `ridgerank index`")
        stored_lineage = lance_dataset.read_lineage(dataset, uri)
        if lineage is not None:
            stored_lineage.require(lineage, artifact=f"the page store at {uri}")
        return cls(dataset, uri, stored_lineage)

    def info(self) -> StoreInfo:
        """Count pages and bytes; return them with the lineage."""
        return StoreInfo(
            uri=self.uri,
            pages=len(self),
            prefix_bytes=self.catalog.prefix_nbytes,
            cached_bytes_per_page=self._cached_bytes(),
            fragments=len(self.fragments()),
            retriever=read_vector_origin(self._dataset),
            lineage=self.lineage,
        )

    def _cached_bytes(self) -> float:
        if self.basis is None or not len(self):
            return self.catalog.prefix_nbytes / max(1, len(self))
        [counts] = self._columns([layout.POSITIONS])
        return float(np.mean(counts)) * (self.basis.rank + 4 * len(self.basis.frequencies))

    @cached_property
    def basis(self) -> Basis | None:
        """What pages are coded in, None if they are int8."""
        return read_basis(self.uri, self.lineage)

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

    def pending(self) -> frozenset[str]:
        """Pages that are stored without a prefix: they can be found, and are not encoded yet."""
        return frozenset(self._columns([layout.PAGE_ID], filter=f"{layout.PREFIX_BYTES} = 0")[0])

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

    def read_prefixes(self, page_ids: Sequence[str]) -> list[PackedPrefix]:
        """Read the prefixes of pages, each on memory of its own.

        Pages that are damaged or not encoded yet are named in `UnreadablePages`, and from then on are in
        `unreadable`.
        """
        entries = self.catalog.entries(page_ids)
        blocks = self.read_blocks([entry.address for entry in entries if entry.nbytes])
        prefixes, faults = {}, {}
        for entry in dict.fromkeys(entries):
            block = blocks.get(entry.address)
            if block is None:
                faults[entry.page_id] = "not encoded yet: index its document"
            elif layout.block_checksum(block) != entry.checksum:
                faults[entry.page_id] = "damaged: its bytes differ from their checksum"
            else:
                prefixes[entry.page_id] = layout.unpack(block, basis=self.basis)
        if faults:
            for page_id, reason in faults.items():
                log.warning("%s of %s cannot be read: %s", self.reference(page_id), self.uri, reason)
            self.unreadable |= faults
            shown = lance_dataset.shorten([f"{self.reference(page)} ({why})" for page, why in faults.items()])
            raise UnreadablePages(f"{len(faults)} pages of {self.uri} cannot be read: {shown}")
        return [prefixes[page_id] for page_id in page_ids]

    def read_blocks(self, addresses: Sequence[int]) -> dict[int, bytes | None]:
        """The bytes of prefixes by the addresses of their rows."""
        if not addresses:
            return {}
        with lance_dataset.wrap_errors(f"reading pages of the page store at {self.uri}"):
            return dict(self._dataset.read_blobs(layout.PREFIX, addresses=sorted(set(addresses))))

    def probe(self) -> None:
        """Read the first page from where it lies; an error says why the store cannot be read now."""
        with lance_dataset.wrap_errors(f"reading the page store at {self.uri}"):
            first = self._dataset.head(1, columns=[layout.PAGE_ID]).column(layout.PAGE_ID).to_pylist()
        self.read_prefixes(first)

    @property
    def version(self) -> int:
        """Lance's number of the version that is open."""
        return int(self._dataset.version)

    def is_current(self) -> bool:
        """Whether nobody has written to the store since it was opened; what is open stays as it was."""
        with lance_dataset.wrap_errors(f"reading the page store at {self.uri}"):
            return bool(self._dataset.version == self._dataset.latest_version)

    def fragments(self) -> list[Any]:
        """List the pieces Lance keeps the rows in, each readable on its own."""
        return list(self._dataset.get_fragments())

    def close(self) -> None:
        """Nothing is held open; stores are closed for the symmetry of it."""

    def __len__(self) -> int:
        return int(self._dataset.count_rows())

    def __contains__(self, page_id: object) -> bool:
        return isinstance(page_id, str) and self.lookup(page_id) == page_id

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
