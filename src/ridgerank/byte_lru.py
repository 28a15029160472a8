"""Values in memory up to a number of bytes, the least recently used leaving first."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

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
        """The value of a key, which becomes the most recently used; None where there is none."""
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
