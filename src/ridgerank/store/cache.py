"""Prefixes kept in memory up to a number of bytes, the least recently used leaving first."""

from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

from ridgerank.errors import StoreError
from ridgerank.store.layout import PackedPrefix, block_of


class ReadsPrefixes(Protocol):
    """A `PageStore`, or whatever reads prefixes as it does."""

    def read_prefixes(self, page_ids: Sequence[str]) -> list[PackedPrefix]:
        """Read the prefixes of pages, each into memory of its own."""


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """How a cache has fared."""

    hits: int
    """Pages found, those being read for another thread included."""
    misses: int
    """Pages read from the store."""
    pages: int
    nbytes: int


class PrefixCache:
    """Reads prefixes through a bounded memory; safe for any number of threads.

    A page asked for by two threads at once is read once. A page larger than the whole cache passes through.
    """

    def __init__(self, store: ReadsPrefixes, *, capacity_bytes: int) -> None:
        if capacity_bytes < 0:
            raise StoreError(f"a cache of {capacity_bytes} bytes, wanted 0 or more")
        self._store = store
        self._capacity = capacity_bytes
        self._lock = Lock()
        self._held: OrderedDict[str, PackedPrefix] = OrderedDict()
        self._coming: dict[str, Future[PackedPrefix]] = {}
        self._nbytes = self._hits = self._misses = 0

    def read_prefixes(self, page_ids: Sequence[str]) -> list[PackedPrefix]:
        """Give the prefixes of pages, from memory where they are there."""
        found: dict[str, PackedPrefix] = {}
        awaited: dict[str, Future[PackedPrefix]] = {}
        mine: dict[str, Future[PackedPrefix]] = {}
        with self._lock:
            for page_id in dict.fromkeys(page_ids):
                if page_id in self._held:
                    self._held.move_to_end(page_id)
                    found[page_id] = self._held[page_id]
                elif page_id in self._coming:
                    awaited[page_id] = self._coming[page_id]
                else:
                    mine[page_id] = self._coming[page_id] = Future()
            self._hits += len(found) + len(awaited)
            self._misses += len(mine)
        if mine:
            found |= self._fetch(mine)
        found |= {page_id: coming.result() for page_id, coming in awaited.items()}
        return [found[page_id] for page_id in page_ids]

    def counts(self) -> CacheCounts:
        """Hits, misses and what is held now."""
        with self._lock:
            return CacheCounts(self._hits, self._misses, len(self._held), self._nbytes)

    def _fetch(self, mine: dict[str, Future[PackedPrefix]]) -> dict[str, PackedPrefix]:
        try:
            read = dict(zip(mine, self._store.read_prefixes(list(mine)), strict=True))
        except BaseException as error:
            with self._lock:
                for page_id, coming in mine.items():
                    del self._coming[page_id]
                    coming.set_exception(error)
            raise
        with self._lock:
            for page_id, prefix in read.items():
                self._hold(page_id, prefix)
                del self._coming[page_id]
        for page_id, coming in mine.items():
            coming.set_result(read[page_id])
        return read

    def _hold(self, page_id: str, prefix: PackedPrefix) -> None:
        nbytes = block_of(prefix).nbytes
        if nbytes > self._capacity:
            return
        while self._nbytes + nbytes > self._capacity:
            _, dropped = self._held.popitem(last=False)
            self._nbytes -= block_of(dropped).nbytes
        self._held[page_id] = prefix
        self._nbytes += nbytes
