"""Pages kept in memory, up to a number of bytes."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock
from typing import Generic, TypeVar

from ridgerank.errors import RidgeRankError

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

CACHE_BYTES = 1 << 30
"""What a reranker keeps of its pages in memory unless told otherwise."""


class ByteLRU(Generic[Key, Value]):
    """A mapping of bounded size; safe for any number of threads."""

    def __init__(self, capacity_bytes: int, *, count_bytes: Callable[[Value], int]) -> None:
        self._capacity_bytes = capacity_bytes
        self._count_bytes = count_bytes
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._nbytes = 0
        self._lock = Lock()

    def get(self, key: Key) -> Value | None:
        """The value of a key, which becomes the most recently used; None if there is none."""
        with self._lock:
            if key not in self._values:
                return None
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

    def size(self) -> tuple[int, int]:
        """How many values are held, and their bytes."""
        with self._lock:
            return len(self._values), self._nbytes


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """Hits and misses of a cache so far, and what it holds now."""

    hits: int
    """Values that were in the cache, or already being read for another thread."""
    misses: int
    """Values that were read."""
    pages: int
    nbytes: int


class LoadingCache(Generic[Key, Value]):
    """Reads values through a bounded memory; safe for any number of threads.

    A value that two threads need at once is read once. One larger than the whole cache is not held.
    """

    def __init__(self, capacity_bytes: int, *, count_bytes: Callable[[Value], int]) -> None:
        if capacity_bytes < 0:
            raise RidgeRankError(f"cache size must be 0 bytes or more, not {capacity_bytes}")
        self._lock = Lock()
        self._held: ByteLRU[Key, Value] = ByteLRU(capacity_bytes, count_bytes=count_bytes)
        self._pending: dict[Key, Future[Value]] = {}
        self._hits = self._misses = 0

    def read(self, keys: Sequence[Key], read: Callable[[Sequence[Key]], list[Value]]) -> list[Value]:
        """The values of keys, from memory if they are held; `read` gives the others."""
        values: dict[Key, Value] = {}
        awaited: dict[Key, Future[Value]] = {}
        to_read: dict[Key, Future[Value]] = {}
        with self._lock:
            for key in dict.fromkeys(keys):
                if (value := self._held.get(key)) is not None:
                    values[key] = value
                elif key in self._pending:
                    awaited[key] = self._pending[key]
                else:
                    to_read[key] = self._pending[key] = Future()
            self._hits += len(values) + len(awaited)
            self._misses += len(to_read)
        if to_read:
            values |= self._read(to_read, read)
        values |= {key: future.result() for key, future in awaited.items()}
        return [values[key] for key in keys]

    def counts(self) -> CacheCounts:
        """Hits, misses and what is held now."""
        with self._lock:
            return CacheCounts(self._hits, self._misses, *self._held.size())

    def _read(
        self, to_read: dict[Key, Future[Value]], read: Callable[[Sequence[Key]], list[Value]]
    ) -> dict[Key, Value]:
        try:
            values = dict(zip(to_read, read(list(to_read)), strict=True))
        except BaseException as error:
            with self._lock:
                for key, future in to_read.items():
                    del self._pending[key]
                    future.set_exception(error)
            raise
        with self._lock:
            for key, value in values.items():
                self._held.put(key, value)
                del self._pending[key]
        for key, future in to_read.items():
            future.set_result(values[key])
        return values
