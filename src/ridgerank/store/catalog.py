"""Where everything is: page id or name to entry, entry to the bytes of its prefix.

A small store is listed whole, on first use. A large one has Lance's indices over page ids and names
(`StoreWriter.index_pages`): there only what is asked for is looked up, and what was asked for lately is
remembered, so that neither memory nor the time to open grows with the store.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from threading import Lock
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ridgerank.errors import StoreError
from ridgerank.store import lance_dataset, layout

REMEMBERED = 65_536
"""Entries of a large store kept in memory, those asked for last: some 40 MB."""
_IDS_A_QUERY = 1000
_INDEXED = (layout.PAGE_ID, layout.REFERENCES)


class Place(NamedTuple):
    """Where one page's prefix lies."""

    address: int
    """Lance's address of the row, the fragment in its upper half."""
    offset: int
    """First byte in the fragment's data file."""
    nbytes: int


class Entry(NamedTuple):
    """A page of a store, without its content."""

    page_id: str
    references: tuple[str, ...]
    positions: int
    """How many positions its prefix holds."""
    place: Place


class Catalog(Protocol):
    """The pages of one version of a store; for any number of threads."""

    def entries(self, page_ids: Sequence[str]) -> list[Entry]:
        """Look pages up; those missing are named in the error."""

    def resolve(self, names: Iterable[str]) -> dict[str, str]:
        """Page id behind each page id or exact reference; names of no page are left out."""

    def table(self, page_ids: Sequence[str], columns: Sequence[str]) -> Any:  # noqa: ANN401 (a table of Arrow)
        """Columns of pages, in the order asked for."""

    def page_ids(self) -> list[str]:
        """Every page, in the order stored."""

    @property
    def prefix_nbytes(self) -> int:
        """Bytes of all prefixes together."""


def catalog_of(opened: Any, uri: str) -> Catalog:  # noqa: ANN401 (Lance is untyped)
    """The catalog that suits a store: looked up where its pages are indexed, listed where not."""
    return IndexedCatalog(opened, uri) if pages_indexed(opened) else ListedCatalog(opened, uri)


def pages_indexed(opened: Any) -> bool:  # noqa: ANN401
    """Whether page ids and names can be looked up without reading all of them."""
    fields = {name for index in opened.describe_indices() for name in index.field_names}
    return set(_INDEXED) <= fields


class ListedCatalog:
    """All pages of a small store, in memory from the first use on."""

    def __init__(self, opened: Any, uri: str) -> None:  # noqa: ANN401
        self._dataset = opened
        self._uri = uri

    def entries(self, page_ids: Sequence[str]) -> list[Entry]:
        """Look pages up; those missing are named in the error."""
        return [self._entries[row] for row in self._rows(page_ids)]

    def resolve(self, names: Iterable[str]) -> dict[str, str]:
        """Page id behind each page id or exact reference; names of no page are left out."""
        found = {
            name: name if name in self._row_of else self._page_of_reference.get(name)
            for name in dict.fromkeys(names)
        }
        return {name: page_id for name, page_id in found.items() if page_id is not None}

    def table(self, page_ids: Sequence[str], columns: Sequence[str]) -> Any:  # noqa: ANN401
        """Columns of pages, in the order asked for."""
        rows = self._rows(page_ids)
        with lance_dataset.telling(f"reading the page store at {self._uri}"):
            return self._dataset.take(rows, columns=list(columns))

    def page_ids(self) -> list[str]:
        """Every page, in the order stored."""
        return list(self._row_of)

    @property
    def prefix_nbytes(self) -> int:
        """Bytes of all prefixes together."""
        return sum(entry.place.nbytes for entry in self._entries)

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
    def _entries(self) -> list[Entry]:
        with lance_dataset.telling(f"reading the page store at {self._uri}"):
            return _entries_in(self._dataset.to_table(columns=_ENTRY_COLUMNS, **DESCRIBED))


class IndexedCatalog:
    """Pages of a large store, looked up when they are asked for."""

    def __init__(self, opened: Any, uri: str, *, remembered: int = REMEMBERED) -> None:  # noqa: ANN401
        self._dataset = opened
        self._uri = uri
        self._known: OrderedDict[str, Entry] = OrderedDict()
        self._named: OrderedDict[str, str] = OrderedDict()
        self._remembered = remembered
        self._lock = Lock()

    def entries(self, page_ids: Sequence[str]) -> list[Entry]:
        """Look pages up; those missing are named in the error."""
        found = self._find(page_ids)
        _require_all(page_ids, found, self._uri)
        return [found[page_id] for page_id in page_ids]

    def resolve(self, names: Iterable[str]) -> dict[str, str]:
        """Page id behind each page id or exact reference; names of no page are left out."""
        wanted = list(dict.fromkeys(names))
        with self._lock:
            found = {name: self._named[name] for name in wanted if name in self._named}
        unknown = [name for name in wanted if name not in found]
        found |= {page_id: page_id for page_id in self._find([name for name in unknown if _is_id(name)])}
        for some in _portions([name for name in unknown if name not in found]):
            entries = self._select(f"array_has_any({layout.REFERENCES}, make_array({_quoted(some)}))")
            self._remember(entries)
            owner = {name: entry.page_id for entry in entries for name in entry.references}
            found |= {name: owner[name] for name in some if name in owner}
        with self._lock:
            for name in unknown:
                if name in found and not _is_id(name):
                    self._named[name] = found[name]
            while len(self._named) > self._remembered:
                self._named.popitem(last=False)
        return found

    def table(self, page_ids: Sequence[str], columns: Sequence[str]) -> Any:  # noqa: ANN401
        """Columns of pages, in the order asked for."""
        wanted = list(dict.fromkeys(page_ids))
        with lance_dataset.telling(f"reading the page store at {self._uri}"):
            parts = [
                self._dataset.to_table(columns=list(columns), filter=_having(some))
                for some in _portions(wanted)
            ]
            table = pa.concat_tables(parts) if parts else self._dataset.schema.empty_table().select(columns)
        row_of = {page_id: row for row, page_id in enumerate(table.column(layout.PAGE_ID).to_pylist())}
        _require_all(page_ids, row_of, self._uri)
        return table.take(pa.array([row_of[page_id] for page_id in page_ids], pa.int64()))

    def page_ids(self) -> list[str]:
        """Every page, in the order stored."""
        with lance_dataset.telling(f"reading the page store at {self._uri}"):
            table = self._dataset.to_table(columns=[layout.PAGE_ID])
        page_ids: list[str] = table.column(layout.PAGE_ID).to_pylist()
        return page_ids

    @property
    def prefix_nbytes(self) -> int:
        """Bytes of all prefixes together."""
        with lance_dataset.telling(f"reading the page store at {self._uri}"):
            scanned = self._dataset.scanner(columns=[layout.PREFIX], **DESCRIBED).to_batches()
            return sum(int(places_of(batch)[:, 2].sum()) for batch in scanned)

    def _find(self, page_ids: Sequence[str]) -> dict[str, Entry]:
        with self._lock:
            found = {page_id: self._known[page_id] for page_id in page_ids if page_id in self._known}
            for page_id in found:
                self._known.move_to_end(page_id)
        for some in _portions([page_id for page_id in dict.fromkeys(page_ids) if page_id not in found]):
            entries = self._select(_having(some))
            self._remember(entries)
            found |= {entry.page_id: entry for entry in entries}
        return found

    def _select(self, condition: str) -> list[Entry]:
        with lance_dataset.telling(f"looking up pages of the page store at {self._uri}"):
            return _entries_in(self._dataset.to_table(columns=_ENTRY_COLUMNS, filter=condition, **DESCRIBED))

    def _remember(self, entries: Sequence[Entry]) -> None:
        with self._lock:
            for entry in entries:
                self._known[entry.page_id] = entry
                self._known.move_to_end(entry.page_id)
            while len(self._known) > self._remembered:
                self._known.popitem(last=False)


DESCRIBED: dict[str, Any] = {"blob_handling": "blobs_descriptions", "with_row_address": True}
"""How to scan so that prefixes come as positions and sizes, not as bytes."""
_ENTRY_COLUMNS = [layout.PAGE_ID, layout.REFERENCES, layout.POSITIONS, layout.PREFIX]


def places_of(table: Any) -> NDArray[np.uint64]:  # noqa: ANN401
    """(rows, 3): the `Place` of each row of a scan that was `DESCRIBED`."""
    described = table.column(layout.PREFIX)
    parts = [pc.struct_field(described, name) for name in ("position", "size")]
    return np.stack(
        [np.asarray(part, dtype=np.uint64) for part in (table.column("_rowaddr"), *parts)], axis=1
    )


def _entries_in(table: Any) -> list[Entry]:  # noqa: ANN401
    columns = [table.column(name).to_pylist() for name in _ENTRY_COLUMNS[:3]]
    return [
        Entry(page_id, tuple(references), positions, Place(*place))
        for page_id, references, positions, place in zip(*columns, places_of(table).tolist(), strict=True)
    ]


def _require_all(page_ids: Iterable[str], found: Any, uri: str) -> None:  # noqa: ANN401 (any container)
    missing = [page_id for page_id in page_ids if page_id not in found]
    if missing:
        raise StoreError(
            f"pages not in the page store at {uri}: {lance_dataset.shorten(missing)}; index them first"
        )


def _is_id(name: str) -> bool:
    """Whether a name may be a page id: a 256-bit digest in hex."""
    return len(name) == 64 and all(sign in "0123456789abcdef" for sign in name)


def _having(page_ids: Sequence[str]) -> str:
    return f"{layout.PAGE_ID} IN ({_quoted(page_ids)})"


def _quoted(names: Sequence[str]) -> str:
    return ", ".join("'" + name.replace("'", "''") + "'" for name in names)


def _portions(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), _IDS_A_QUERY):
        yield names[start : start + _IDS_A_QUERY]
