"""A query over stored pages: read the prefixes, run only the query, return the states at the exit layer."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from types import TracebackType
from typing import Self

import numpy as np
from torch import Tensor

from ridgerank.backbones.attention import Attention
from ridgerank.backbones.base import Backbone
from ridgerank.errors import StoreError
from ridgerank.records import State
from ridgerank.store.cache import CacheCounts, PrefixCache
from ridgerank.store.cuda_staging import Staging
from ridgerank.store.layer_stream import LayerStream
from ridgerank.store.layout import PackedPrefix
from ridgerank.store.model_lineage import require_same_origin
from ridgerank.store.page_store import PageStore
from ridgerank.store.stored_prefixes import StoredPrefixes


@dataclass(frozen=True, slots=True, eq=False)
class Shallow:
    """What one pass gives."""

    states: Tensor
    """(pages, width), float32: the raw state of each page, read where `run` was told to (eq. 5)."""
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

    def run(self, query: str, page_ids: Sequence[str], *, state: State = "last") -> Shallow:
        """Run a query over pages, in the order given; a page twice is read and computed twice."""
        if not page_ids:
            raise StoreError("no pages to run the query over; wanted at least one")
        if self.backbone.device.type == "cuda":
            with self._one_at_a_time:
                return self._staged(query, page_ids, state)
        if self._cache is not None:
            start = time.perf_counter()
            pages = self._cache.read_prefixes(page_ids)
            reading = time.perf_counter() - start
            prefixes = StoredPrefixes.of(pages, join_layer=self._join_layer)
            return self._timed(query, prefixes, reading, state)
        with self._one_at_a_time:
            return self._streamed(query, page_ids, state)

    def run_with(
        self,
        query: str,
        page_ids: Sequence[str],
        guests: Mapping[str, PackedPrefix],
        *,
        state: State = "last",
    ) -> Shallow:
        """Run a query over pages of which some are in no store: their prefixes are given, by page id."""
        start = time.perf_counter()
        stored = [page_id for page_id in page_ids if page_id not in guests]
        held = dict(zip(stored, self._read(stored), strict=True)) if stored else {}
        pages = [guests[page_id] if page_id in guests else held[page_id] for page_id in page_ids]
        prefixes = StoredPrefixes.of(pages, join_layer=self._join_layer, device=self.backbone.device)
        return self._timed(query, prefixes, time.perf_counter() - start, state)

    def run_together(
        self,
        asked: Sequence[tuple[str, Sequence[str]]],
        guests: Mapping[str, PackedPrefix],
    ) -> Shallow:
        """Run several queries, each over its own pages, in one pass: the states of all, in the order given.

        Queries of equal suffix length and lists of equal longest page give what each gives alone.
        """
        start = time.perf_counter()
        page_ids = [page_id for _, own in asked for page_id in own]
        owners = [number for number, (_, own) in enumerate(asked) for _ in own]
        stored = list(dict.fromkeys(page_id for page_id in page_ids if page_id not in guests))
        held = dict(zip(stored, self._read(stored), strict=True)) if stored else {}
        pages = [guests[page_id] if page_id in guests else held[page_id] for page_id in page_ids]
        prefixes = StoredPrefixes.of(pages, join_layer=self._join_layer, device=self.backbone.device)
        read = time.perf_counter()
        states = self.backbone.states_together([query for query, _ in asked], owners, prefixes)
        return Shallow(states, 1000 * (read - start), compute_ms=1000 * (time.perf_counter() - read))

    def attend(self, query: str, page_id: str) -> tuple[Attention, PackedPrefix]:
        """What the query's last position attends to on one page, with the page as stored."""
        [page] = self._read([page_id])
        prefixes = StoredPrefixes.of([page], join_layer=self._join_layer, device=self.backbone.device)
        return self.backbone.attention(query, prefixes), page

    def cache_counts(self) -> CacheCounts:
        """How the cache has fared; all zeros where there is none."""
        return self._cache.counts() if self._cache is not None else CacheCounts(0, 0, 0, 0)

    def _read(self, page_ids: Sequence[str]) -> list[PackedPrefix]:
        reader = self._cache if self._cache is not None else self.store
        return reader.read_prefixes(page_ids)

    def _streamed(self, query: str, page_ids: Sequence[str], state: State) -> Shallow:
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
            states = self.backbone.states(query, prefixes, state=state)
        total = time.perf_counter() - start
        return Shallow(states, reading_ms=1000 * waited, compute_ms=1000 * (total - waited))

    def _staged(self, query: str, page_ids: Sequence[str], state: State) -> Shallow:
        start = time.perf_counter()
        needed = self.store.prefix_nbytes(page_ids)
        if self._staging is None or needed > self._staged_bytes:
            self._staging, self._staged_bytes = Staging(needed, self.backbone.device), needed
        pages = self._staging.load(self.store, page_ids)
        reading = time.perf_counter() - start
        return self._timed(query, StoredPrefixes(pages, join_layer=self._join_layer), reading, state)

    def _timed(self, query: str, prefixes: StoredPrefixes, reading: float, state: State) -> Shallow:
        start = time.perf_counter()
        states = self.backbone.states(query, prefixes, state=state)
        return Shallow(states, 1000 * reading, compute_ms=1000 * (time.perf_counter() - start))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.store.close()
