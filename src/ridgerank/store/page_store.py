"""Reading a store: pages by id or name, and the prefixes of many pages at once.

The catalog leads from a page id or name to an entry, which says where the prefix lies. A small store is
listed whole, on first use. In a large one Lance's indices (`StoreWriter.index_pages`) find single pages, so
that neither memory nor the time to open grows with it.
"""

import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from threading import Lock
from typing import Any, Generic, NamedTuple, Self, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ridgerank.errors import RidgeRankError, StoreError, UnreadablePages
from ridgerank.lineage import Lineage
from ridgerank.store import lance_dataset, layout
from ridgerank.store.lance_dataset import read_basis
from ridgerank.store.layout import Basis, PackedPrefix
from ridgerank.store.page_filter import PageFilter, PageSelection
from ridgerank.store.vector_columns import VectorColumn, VectorOrigin, read_vector_origin, read_vectors

log = logging.getLogger(__name__)

CACHE_BYTES = 1 << 30
"""What a reranker keeps of its pages in memory unless told otherwise."""
CACHED_ENTRIES = 65_536
"""Entries of a large store kept in memory, the most recently used: some 40 MB."""
_IDS_PER_FILTER = 1000
_INDEXED_COLUMNS = (layout.PAGE_ID, layout.REFERENCES)
_PAGE_ID = re.compile("[0-9a-f]{64}")


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """Hits and misses of a cache so far, and what it holds now."""

    hits: int = 0
    misses: int = 0
    pages: int = 0
    nbytes: int = 0


class ByteLRU(Generic[Key, Value]):
    """A mapping of bounded size; safe for any number of threads."""

    def __init__(
        self, capacity_bytes: int, *, count_bytes: Callable[[Value], int] = attrgetter("nbytes")
    ) -> None:
        if capacity_bytes < 0:
            raise RidgeRankError(f"cache size must be 0 bytes or more, not {capacity_bytes}")
        self._capacity_bytes = capacity_bytes
        self._count_bytes = count_bytes
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._nbytes = self._hits = self._misses = 0
        self._lock = Lock()

    def get(self, key: Key) -> Value | None:
        """The value of a key, which becomes the most recently used; None if there is none."""
        with self._lock:
            if key not in self._values:
                self._misses += 1
                return None
            self._hits += 1
            self._values.move_to_end(key)
            return self._values[key]

    def put(self, key: Key, value: Value) -> None:
        """Hold a value as the most recently used; one larger than the whole capacity is not held."""
        nbytes = self._count_bytes(value)
        with self._lock:
            if key in self._values:
                self._nbytes -= self._count_bytes(self._values.pop(key))
            if nbytes > self._capacity_bytes:
                return
            self._values[key] = value
            self._nbytes += nbytes
            while self._nbytes > self._capacity_bytes:
                _, evicted = self._values.popitem(last=False)
                self._nbytes -= self._count_bytes(evicted)

    def counts(self) -> CacheCounts:
        """Hits, misses and what is held now."""
        with self._lock:
            return CacheCounts(self._hits, self._misses, len(self._values), self._nbytes)


class CatalogEntry(NamedTuple):
    """A page of a store, without its content."""

    page_id: str
    references: tuple[str, ...]
    positions: int
    nbytes: int
    """Bytes of its prefix; 0 if it has none yet."""
    checksum: int
    address: int
    """Lance's address of the row, in this version of the store."""


class Catalog:
    """The pages of one version of a store, listed on first use; for any number of threads."""

    def __init__(self, dataset: Any, uri: str) -> None:  # noqa: ANN401
        self._dataset = dataset
        self._uri = uri

    def entries(self, page_ids: Sequence[str]) -> list[CatalogEntry]:
        """The entries of pages; pages that are missing are named in the error."""
        found = self._find(page_ids)
        missing = [page_id for page_id in page_ids if page_id not in found]
        if missing:
            raise StoreError(
                f"pages not in the page store at {self._uri}: {lance_dataset.shorten(missing)}; "
                "index them first"
            )
        return [found[page_id] for page_id in page_ids]

    def resolve(self, names: Iterable[str]) -> dict[str, str]:
        """Page id behind each page id or exact reference; names of no page are left out."""
        entries = {name: self._listed.get(name) or self._by_reference.get(name) for name in names}
        return {name: entry.page_id for name, entry in entries.items() if entry is not None}

    def table(self, page_ids: Sequence[str], columns: Sequence[str]) -> Any:  # noqa: ANN401
        """Columns of pages, in the order of `page_ids`."""
        row_of = {page_id: row for row, page_id in enumerate(self._listed)}
        rows = [row_of[entry.page_id] for entry in self.entries(page_ids)]
        with lance_dataset.wrap_errors(f"reading the page store at {self._uri}"):
            return self._dataset.take(rows, columns=list(columns))

    def _find(self, page_ids: Sequence[str]) -> Mapping[str, CatalogEntry]:
        return self._listed

    def _select(self, condition: str | None = None) -> list[CatalogEntry]:
        with lance_dataset.wrap_errors(f"looking up pages of the page store at {self._uri}"):
            table = self._dataset.to_table(columns=_ENTRY_COLUMNS, filter=condition, with_row_address=True)
            columns = (table.column(name).to_pylist() for name in (*_ENTRY_COLUMNS, "_rowaddr"))
            return [
                CatalogEntry(page_id, tuple(names or ()), *numbers)
                for page_id, names, *numbers in zip(*columns, strict=True)
            ]

    @cached_property
    def _listed(self) -> dict[str, CatalogEntry]:
        return {entry.page_id: entry for entry in self._select()}

    @cached_property
    def _by_reference(self) -> dict[str, CatalogEntry]:
        return {name: entry for entry in self._listed.values() for name in entry.references}


class IndexedCatalog(Catalog):
    """The pages of a large store, each looked up when it is needed; the last ones are cached."""

    def __init__(self, dataset: Any, uri: str, *, cached_entries: int = CACHED_ENTRIES) -> None:  # noqa: ANN401
        super().__init__(dataset, uri)
        self._cache: ByteLRU[str, CatalogEntry] = ByteLRU(cached_entries, count_bytes=lambda _: 1)
        """By page id and by reference."""

    def resolve(self, names: Iterable[str]) -> dict[str, str]:
        """Page id behind each page id or exact reference; names of no page are left out."""
        names = list(dict.fromkeys(names))
        entries = self._find(names)
        for batch in _batches([name for name in names if name not in entries]):
            found = self._select(f"array_has_any({layout.REFERENCES}, make_array({_quoted(batch)}))")
            by_reference = {name: entry for entry in found for name in entry.references}
            for name in by_reference.keys() & set(batch):
                entries[name] = by_reference[name]
                self._cache.put(name, by_reference[name])
        return {name: entries[name].page_id for name in names if name in entries}

    def table(self, page_ids: Sequence[str], columns: Sequence[str]) -> Any:  # noqa: ANN401
        """Columns of pages, in the order of `page_ids`."""
        self.entries(page_ids)
        with lance_dataset.wrap_errors(f"reading the page store at {self._uri}"):
            parts = [
                self._dataset.to_table(columns=list(columns), filter=ids_filter(batch))
                for batch in _batches(list(dict.fromkeys(page_ids)))
            ]
            table = pa.concat_tables(parts) if parts else self._dataset.schema.empty_table().select(columns)
        row_of = {page_id: row for row, page_id in enumerate(table.column(layout.PAGE_ID).to_pylist())}
        return table.take(pa.array([row_of[page_id] for page_id in page_ids], pa.int64()))

    def _find(self, page_ids: Sequence[str]) -> dict[str, CatalogEntry]:
        cached = {page_id: self._cache.get(page_id) for page_id in page_ids}
        entries = {page_id: entry for page_id, entry in cached.items() if entry is not None}
        for batch in _batches([name for name in cached if name not in entries and _PAGE_ID.fullmatch(name)]):
            for entry in self._select(ids_filter(batch)):
                entries[entry.page_id] = entry
                self._cache.put(entry.page_id, entry)
        return entries


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


def ids_filter(page_ids: Sequence[str]) -> str:
    """Pages as a condition in Lance's SQL."""
    return f"{layout.PAGE_ID} IN ({_quoted(page_ids)})"


def _quoted(names: Sequence[str]) -> str:
    return ", ".join("'" + name.replace("'", "''") + "'" for name in names)


def _batches(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), _IDS_PER_FILTER):
        yield names[start : start + _IDS_PER_FILTER]


_LABELLED_PAGES = 1000


_PAGE_COLUMNS = [layout.PAGE_ID, layout.REFERENCES, layout.SOURCE, layout.TEXT, layout.THUMBNAIL]


@dataclass(frozen=True, slots=True, eq=False)
class StoredPage:
    """A stored page without its prefix."""

    page_id: str
    references: tuple[str, ...]
    """Every name of this content: `report.pdf#3`, and `copy.pdf#3` where the same page occurs twice."""
    source: str
    text: str
    thumbnail: bytes
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
    lineage: Lineage

    @property
    def bytes_per_page(self) -> float:
        """Mean bytes of a prefix, 0 in an empty store."""
        return self.prefix_bytes / self.pages if self.pages else 0.0


class PageStore:
    """One version of a store, open for reading by any number of threads; a context manager."""

    def __init__(self, dataset: Any, uri: str, lineage: Lineage) -> None:  # noqa: ANN401
        self.uri = uri
        self.lineage = lineage
        self._dataset = dataset
        self.catalog: Catalog = (IndexedCatalog if has_page_index(dataset) else Catalog)(dataset, uri)
        self.unreadable: dict[str, str] = {}
        """Pages that were found to be damaged or not encoded yet, and why the model cannot score them."""

    @classmethod
    def open(cls, store: str | Path) -> Self:
        """Open the store at a path or URL."""
        uri = str(store)
        dataset = lance_dataset.open_dataset(uri)
        if dataset is None:
            raise StoreError(f"no page store at {uri}; make one with `ridgerank index`")
        return cls(dataset, uri, lance_dataset.read_lineage(dataset, uri))

    def info(self) -> StoreInfo:
        """Count pages and bytes; return them with the lineage."""
        pages, nbytes = len(self), sum(self._column(layout.PREFIX_BYTES))
        cached = nbytes / max(1, pages)
        if self.basis is not None and pages:
            position_bytes = self.basis.rank + 4 * len(self.basis.frequencies)
            cached = float(np.mean(self._column(layout.POSITIONS))) * position_bytes
        return StoreInfo(
            uri=self.uri,
            pages=pages,
            prefix_bytes=nbytes,
            cached_bytes_per_page=cached,
            fragments=len(self.fragments()),
            retriever=read_vector_origin(self._dataset),
            lineage=self.lineage,
        )

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
        columns = lance_dataset.read_columns(self._dataset, self.uri, layout.PAGE_ID, layout.TEXT)
        return dict(zip(*columns, strict=True))

    def _column(self, name: str, **options: Any) -> list[Any]:  # noqa: ANN401 (as Lance takes)
        return lance_dataset.read_columns(self._dataset, self.uri, name, **options)[0]

    def select(self, page_filter: PageFilter) -> PageSelection:
        """The pages that a filter lets through; a filter that lets none through is refused."""
        if page_filter.labels and layout.LABELS not in self._dataset.schema.names:
            raise StoreError(
                f"the page store at {self.uri} has no metadata; put metadata.jsonl beside the documents and "
                "index them again: no page is encoded twice"
            )
        condition = page_filter.condition()
        page_ids = self._column(layout.PAGE_ID, filter=condition or None)
        if not page_ids:
            raise StoreError(
                f"no page of the page store at {self.uri} has {page_filter}; its pages are called as in "
                f"{lance_dataset.shorten(self.references(self.page_ids()[:3])) or 'no document'}"
            )
        return PageSelection(frozenset(page_ids), condition)

    def label_examples(self) -> list[str]:
        """A label of each key that the first pages have."""
        if layout.LABELS not in self._dataset.schema.names:
            return []
        labels: dict[str, str] = {}
        for page_labels in self._column(layout.LABELS, limit=_LABELLED_PAGES):
            for label in page_labels or []:
                labels.setdefault(label.partition("=")[0], label)
        return list(labels.values())

    def page_ids(self) -> list[str]:
        """List every page, in the order stored."""
        return self._column(layout.PAGE_ID)

    def pending(self) -> frozenset[str]:
        """Pages that are stored without a prefix: they can be found, and are not encoded yet."""
        return frozenset(self._column(layout.PAGE_ID, filter=f"{layout.PREFIX_BYTES} = 0"))

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
        rows = zip(*(table.column(name).to_pylist() for name in _PAGE_COLUMNS), page_vectors, strict=True)
        return [StoredPage(page_id, tuple(references), *content) for page_id, references, *content in rows]

    def read_prefixes(self, page_ids: Sequence[str]) -> list[PackedPrefix]:
        """Read the prefixes of pages; those damaged or not encoded are raised, and kept in `unreadable`."""
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
        self.read_prefixes(self._column(layout.PAGE_ID, limit=1))

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
