"""Reading a store: pages by id or name, prefixes by the dozen into memory the caller holds."""

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ridgerank.errors import StoreError
from ridgerank.lineage import Lineage
from ridgerank.store import lance_dataset, layout, prefix_readers, rows
from ridgerank.store.catalog import Place, catalog_of
from ridgerank.store.disk_cache import CachedBlocks, DiskCache
from ridgerank.store.layout import PackedPrefix
from ridgerank.store.prefix_readers import BlockReader, DataFiles
from ridgerank.store.rows import StoredPage
from ridgerank.store.vector_columns import VectorColumn, VectorOrigin, origin_in


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """A store at a glance."""

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

    Pages added after it was opened are seen by those who open it again.
    """

    def __init__(
        self,
        opened: Any,  # noqa: ANN401 (Lance is untyped)
        uri: str,
        lineage: Lineage,
        *,
        mapped: bool,
        disk: DiskCache | None,
    ) -> None:
        self.uri = uri
        self.lineage = lineage
        self._dataset = opened
        self.catalog = catalog_of(opened, uri)
        self.blocks: BlockReader = prefix_readers.reader_for(opened, uri, mapped=mapped)
        if disk is not None:
            self.blocks = CachedBlocks(self.blocks, disk, DataFiles(opened), uri)
        self.threads = ThreadPoolExecutor(self.blocks.threads, thread_name_prefix="ridgerank-read")
        # Those that wait for reads have threads of their own: in one pool they could starve the reads.
        self._waiting = ThreadPoolExecutor(2, thread_name_prefix="ridgerank-prefetch")

    @classmethod
    def open(
        cls,
        uri: str,
        *,
        lineage: Lineage | None = None,
        mapped: bool = True,
        disk: DiskCache | None = None,
    ) -> Self:
        """Open the store at a path or URL, refusing one of another lineage than `lineage` where given.

        Unless `mapped`, files are read without mapping them: slower, but the system then does not count
        what it caches of them as this process's memory. With `disk`, prefixes are kept there once read.
        """
        opened = lance_dataset.find(uri)
        if opened is None:
            raise StoreError(f"no page store at {uri}; make one with `ridgerank index`")
        found = lance_dataset.read_lineage(opened, uri)
        if lineage is not None:
            found.require(lineage, artifact=f"the page store at {uri}")
        return cls(opened, uri, found, mapped=mapped, disk=disk)

    def info(self) -> StoreInfo:
        """Count pages and bytes, and tell the lineage."""
        return StoreInfo(
            uri=self.uri,
            pages=len(self),
            prefix_bytes=self.catalog.prefix_nbytes,
            fragments=len(self.fragments()),
            retriever=origin_in(self._dataset),
            lineage=self.lineage,
        )

    @cached_property
    def vectors(self) -> VectorColumn | None:
        """The retriever's vectors, None where no retriever has stored any."""
        origin = origin_in(self._dataset)
        return None if origin is None else VectorColumn(self._dataset, self.uri, origin, self.catalog)

    def texts(self) -> dict[str, str]:
        """Read the text of every page, by page id, in the order stored."""
        with lance_dataset.telling(f"reading the page store at {self.uri}"):
            table = self._dataset.to_table(columns=[layout.PAGE_ID, layout.TEXT])
        return dict(
            zip(*(table.column(name).to_pylist() for name in (layout.PAGE_ID, layout.TEXT)), strict=True)
        )

    def page_ids(self) -> list[str]:
        """List every page, in the order stored."""
        return self.catalog.page_ids()

    def lookup(self, name: str) -> str | None:
        """Look up the page id behind a page id or an exact reference, None where there is no such page."""
        return self.lookup_many([name]).get(name)

    def lookup_many(self, names: Iterable[str]) -> dict[str, str]:
        """`lookup` for many names at once: name → page id, names of no page left out."""
        return self.catalog.resolve(names)

    def find(self, name: str) -> str:
        """Look up the page id behind a page id or an exact reference such as `report.pdf#3`."""
        found = self.lookup(name)
        if found is None:
            raise StoreError(f"no page {name!r} among the {len(self)} of the page store at {self.uri}")
        return found

    def reference(self, page_id: str) -> str:
        """The first name of a stored page, or its id where it has none left."""
        return self.references([page_id])[0]

    def references(self, page_ids: Sequence[str]) -> list[str]:
        """`reference` for many pages at once."""
        return [(*entry.references, entry.page_id)[0] for entry in self.catalog.entries(page_ids)]

    def pages(self, page_ids: Sequence[str], *, vectors: bool = False) -> list[StoredPage]:
        """Read what is known of pages beside their prefixes, in the order asked for."""
        held = vectors and layout.VECTORS in self._dataset.schema.names
        return rows.from_table(
            self.catalog.table(page_ids, [*rows.PAGE_COLUMNS, *([layout.VECTORS] if held else [])])
        )

    def prefix_nbytes(self, page_ids: Sequence[str]) -> int:
        """Count the bytes that the prefixes of these pages take in memory."""
        return sum(entry.place.nbytes for entry in self.catalog.entries(page_ids))

    def read_prefixes(
        self, page_ids: Sequence[str], *, out: NDArray[np.uint8] | None = None
    ) -> list[PackedPrefix]:
        """Read the prefixes of pages, as views on `out`, or each on memory of its own where none is given.

        `out` is one-dimensional, of at least `prefix_nbytes` bytes; it is used from its start.
        """
        places, buffers = self.buffers(page_ids, out)

        def read(index: int) -> None:
            self.blocks.read(places[index], 0, buffers[index].data)

        prefix_readers.each(read, len(places), threads=self.threads, helpers=self.blocks.threads - 1)
        return [layout.unpack(buffer) for buffer in buffers]

    def submit(
        self, page_ids: Sequence[str], *, out: NDArray[np.uint8] | None = None
    ) -> Future[list[PackedPrefix]]:
        """`read_prefixes` in the background, so that reading overlaps with computing."""
        return self._waiting.submit(self.read_prefixes, page_ids, out=out)

    def buffers(
        self, page_ids: Sequence[str], out: NDArray[np.uint8] | None
    ) -> tuple[list[Place], list[NDArray[np.uint8]]]:
        """Tell where the prefixes of pages lie, and give a piece of memory for each."""
        places = [entry.place for entry in self.catalog.entries(page_ids)]
        if out is None:
            return places, [np.empty(place.nbytes, dtype=np.uint8) for place in places]
        ends = list(accumulate(place.nbytes for place in places))
        if ends and out.size < ends[-1]:
            raise StoreError(f"prefixes of {ends[-1]} bytes for a buffer of {out.size}; allocate more")
        return places, [out[end - place.nbytes : end] for place, end in zip(places, ends, strict=True)]

    def fragments(self) -> list[Any]:
        """List the pieces Lance keeps the rows in, each readable on its own."""
        return list(self._dataset.get_fragments())

    def close(self) -> None:
        """Stop the reading threads."""
        self._waiting.shutdown()
        self.threads.shutdown()

    def __len__(self) -> int:
        return int(self._dataset.count_rows())

    def __contains__(self, page_id: object) -> bool:
        return isinstance(page_id, str) and self.lookup(page_id) == page_id

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
