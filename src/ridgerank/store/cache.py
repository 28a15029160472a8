"""Prefixes kept in memory up to a number of bytes, the least recently used leaving first."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

from ridgerank.byte_lru import ByteLRU
from ridgerank.errors import StoreError
from ridgerank.store.layout import PackedPrefix, block_shape


class PrefixReader(Protocol):
    """A `PageStore`, or another object that reads prefixes as it does."""

    def read_prefixes(self, page_ids: Sequence[str]) -> list[PackedPrefix]:
        """Read the prefixes of pages, each into memory of its own."""


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """Hits and misses of a cache so far, and what it holds now."""

    hits: int
    """Pages that were in the cache, or already being read for another thread."""
    misses: int
    """Pages read from the store."""
    pages: int
    nbytes: int


class PrefixCache:
    """Reads prefixes through a bounded memory; safe for any number of threads.

    A page that two threads need at once is read once. A page larger than the whole cache is not held.
    """

    def __init__(self, store: PrefixReader, *, capacity_bytes: int) -> None:
        if capacity_bytes < 0:
            raise StoreError(f"a cache of {capacity_bytes} bytes, wanted 0 or more")
        self._store = store
        self._lock = Lock()
        self._prefixes: ByteLRU[str, PackedPrefix] = ByteLRU(
            capacity_bytes, count_bytes=lambda prefix: block_shape(prefix).nbytes
        )
        self._pending: dict[str, Future[PackedPrefix]] = {}
        self._hits = self._misses = 0

    def read_prefixes(self, page_ids: Sequence[str]) -> list[PackedPrefix]:
        """The prefixes of pages, from memory where they are held."""
        prefixes: dict[str, PackedPrefix] = {}
        awaited: dict[str, Future[PackedPrefix]] = {}
        to_read: dict[str, Future[PackedPrefix]] = {}
        with self._lock:
            for page_id in dict.fromkeys(page_ids):
                if (prefix := self._prefixes.get(page_id)) is not None:
                    prefixes[page_id] = prefix
                elif page_id in self._pending:
                    awaited[page_id] = self._pending[page_id]
                else:
                    to_read[page_id] = self._pending[page_id] = Future()
            self._hits += len(prefixes) + len(awaited)
            self._misses += len(to_read)
        if to_read:
            prefixes |= self._read(to_read)
        prefixes |= {page_id: future.result() for page_id, future in awaited.items()}
        return [prefixes[page_id] for page_id in page_ids]

    def counts(self) -> CacheCounts:
        """Hits, misses and what is held now."""
        with self._lock:
            return CacheCounts(self._hits, self._misses, *self._prefixes.size())

    def _read(self, to_read: dict[str, Future[PackedPrefix]]) -> dict[str, PackedPrefix]:
        try:
            prefixes = dict(zip(to_read, self._store.read_prefixes(list(to_read)), strict=True))
        except BaseException as error:
            with self._lock:
                for page_id, future in to_read.items():
                    del self._pending[page_id]
                    future.set_exception(error)
            raise
        with self._lock:
            for page_id, prefix in prefixes.items():
                self._prefixes.put(page_id, prefix)
                del self._pending[page_id]
        for page_id, future in to_read.items():
            future.set_result(prefixes[page_id])
        return prefixes
