"""The catalog of a store: from a page id or name to its entry, which says where its prefix lies.

A small store is listed whole, on first use. A large store has Lance indices over page ids and names
(`StoreWriter.index_pages`): there single pages are looked up and the last ones cached, so that neither memory
nor the time to open grows with the store.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ridgerank.byte_lru import ByteLRU
from ridgerank.errors import StoreError
from ridgerank.store import lance_dataset, layout

CACHED_ENTRIES = 65_536
"""Entries of a large store kept in memory, the most recently used: some 40 MB."""
_IDS_PER_FILTER = 1000
_INDEXED_COLUMNS = (layout.PAGE_ID, layout.REFERENCES)


class CatalogEntry(NamedTuple):
    """A page of a store, without its content, and where the bytes of its prefix lie."""

    page_id: str
    references: tuple[str, ...]
    positions: int
    """How many positions its prefix holds."""
    address: int
    """Lance's address of the row, the fragment in its upper half."""
    offset: int
    """First byte in the fragment's data file."""
    nbytes: int

    @property
    def fragment(self) -> int:
        """The number of the piece of the dataset it lies in."""
        return self.address >> 32


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
            return _read_entries(self._dataset.to_table(columns=_ENTRY_COLUMNS, **DESCRIBE_BLOBS))


class IndexedCatalog(Catalog):
    """The pages of a large store, each looked up when it is needed; the last ones are cached."""

    def __init__(self, dataset: Any, uri: str, *, cached_entries: int = CACHED_ENTRIES) -> None:  # noqa: ANN401
        super().__init__(dataset, uri)
        self._entry_cache: ByteLRU[str, CatalogEntry] = ByteLRU(cached_entries, count_bytes=lambda _: 1)
        self._name_cache: ByteLRU[str, str] = ByteLRU(cached_entries, count_bytes=lambda _: 1)

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
            batches = self._dataset.scanner(columns=[layout.PREFIX], **DESCRIBE_BLOBS).to_batches()
            return sum(int(read_prefix_ranges(batch)[:, 2].sum()) for batch in batches)

    def _look_up(self, page_ids: Sequence[str]) -> dict[str, CatalogEntry]:
        cached = {page_id: self._entry_cache.get(page_id) for page_id in page_ids}
        entries = {page_id: entry for page_id, entry in cached.items() if entry is not None}
        for batch in _batches([page_id for page_id in dict.fromkeys(page_ids) if page_id not in entries]):
            entries |= {entry.page_id: entry for entry in self._select(ids_filter(batch))}
        return entries

    def _select(self, condition: str) -> list[CatalogEntry]:
        with lance_dataset.wrap_errors(f"looking up pages of the page store at {self._uri}"):
            table = self._dataset.to_table(columns=_ENTRY_COLUMNS, filter=condition, **DESCRIBE_BLOBS)
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


DESCRIBE_BLOBS: dict[str, Any] = {"blob_handling": "blobs_descriptions", "with_row_address": True}
"""Options of a scan that give prefixes as positions and sizes, not as bytes."""
_ENTRY_COLUMNS = [layout.PAGE_ID, layout.REFERENCES, layout.POSITIONS, layout.PREFIX]


def read_prefix_ranges(table: Any) -> NDArray[np.uint64]:  # noqa: ANN401
    """(rows, 3): address, offset and bytes of each prefix of a scan with `DESCRIBE_BLOBS`."""
    descriptions = table.column(layout.PREFIX)
    parts = [pc.struct_field(descriptions, name) for name in ("position", "size")]
    return np.stack(
        [np.asarray(part, dtype=np.uint64) for part in (table.column("_rowaddr"), *parts)], axis=1
    )


def _read_entries(table: Any) -> list[CatalogEntry]:  # noqa: ANN401
    columns = [table.column(name).to_pylist() for name in _ENTRY_COLUMNS[:3]]
    return [
        CatalogEntry(page_id, tuple(references), positions, *prefix_range)
        for page_id, references, positions, prefix_range in zip(
            *columns, read_prefix_ranges(table).tolist(), strict=True
        )
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
