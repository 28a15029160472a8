"""A query over stored pages: read the prefixes, run only the query, return the states at the exit layer."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from types import TracebackType
from typing import Self

import numpy as np
from torch import Tensor

from ridgerank.backbones.base import Backbone
from ridgerank.errors import StoreError
from ridgerank.store.batch import StoredPrefixes
from ridgerank.store.cache import CacheCounts, PrefixCache
from ridgerank.store.origin import require_same_origin
from ridgerank.store.prefetch import LayerStream
from ridgerank.store.read import PageStore
from ridgerank.store.staging import Staging


@dataclass(frozen=True, slots=True, eq=False)
class Shallow:
    """What one pass gives."""

    states: Tensor
    """(pages, width), float32: the raw state of each page at the query's last position (eq. 5)."""
    reading_ms: float
    """Time spent waiting for prefixes; what was read behind the computation does not count."""
    compute_ms: float


class ShallowPass:
    """One model over one store, for any number of threads; a context manager that closes the store.

    With `cache_bytes` pages stay in memory, the least recently used leaving first. With 0, and on CUDA,
    they are read at every request, layer by layer, while the layers before are being computed.
    """

    def __init__(self, backbone: Backbone, store: PageStore, *, cache_bytes: int = 1 << 30) -> None:
        require_same_origin(store.lineage, backbone, artifact=f"the page store at {store.uri}")
        self.backbone = backbone
        self.store = store
        self._join_layer = store.lineage.join_layer
        self._cache = PrefixCache(store, capacity_bytes=cache_bytes) if cache_bytes else None
        self._buffer = np.empty(0, dtype=np.uint8)
        self._staging: Staging | None = None
        self._staged_bytes = 0
        self._one_at_a_time = Lock()
        """The reading buffer and the staging area serve one request at a time."""

    def run(self, query: str, page_ids: Sequence[str]) -> Shallow:
        """Run a query over pages, in the order given; a page twice is read and computed twice."""
        if not page_ids:
            raise StoreError("no pages to run the query over; wanted at least one")
        if self.backbone.device.type == "cuda":
            with self._one_at_a_time:
                return self._staged(query, page_ids)
        if self._cache is not None:
            start = time.perf_counter()
            pages = self._cache.read_prefixes(page_ids)
            reading = time.perf_counter() - start
            return self._timed(query, StoredPrefixes.of(pages, join_layer=self._join_layer), reading)
        with self._one_at_a_time:
            return self._streamed(query, page_ids)

    def cache_counts(self) -> CacheCounts:
        """How the cache has fared; all zeros where there is none."""
        return self._cache.counts() if self._cache is not None else CacheCounts(0, 0, 0, 0)

    def _streamed(self, query: str, page_ids: Sequence[str]) -> Shallow:
        """Layers are computed as soon as they are read, in memory kept from request to request."""
        start = time.perf_counter()
        needed = self.store.prefix_nbytes(page_ids)
        if self._buffer.size < needed:
            self._buffer = np.empty(needed, dtype=np.uint8)
        with LayerStream(self.store, page_ids, out=self._buffer) as stream:
            waited = time.perf_counter() - start

            def wait(layer: int) -> None:
                nonlocal waited
                before = time.perf_counter()
                stream.wait(layer)
                waited += time.perf_counter() - before

            prefixes = StoredPrefixes.of(stream.prefixes, join_layer=self._join_layer, wait=wait)
            states = self.backbone.states(query, prefixes)
        total = time.perf_counter() - start
        return Shallow(states, reading_ms=1000 * waited, compute_ms=1000 * (total - waited))

    def _staged(self, query: str, page_ids: Sequence[str]) -> Shallow:
        start = time.perf_counter()
        needed = self.store.prefix_nbytes(page_ids)
        if self._staging is None or needed > self._staged_bytes:
            self._staging, self._staged_bytes = Staging(needed, self.backbone.device), needed
        pages = self._staging.load(self.store, page_ids)
        reading = time.perf_counter() - start
        return self._timed(query, StoredPrefixes(pages, join_layer=self._join_layer), reading)

    def _timed(self, query: str, prefixes: StoredPrefixes, reading: float) -> Shallow:
        start = time.perf_counter()
        states = self.backbone.states(query, prefixes)
        return Shallow(states, 1000 * reading, compute_ms=1000 * (time.perf_counter() - start))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.store.close()
