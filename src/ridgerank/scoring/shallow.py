"""A query over stored pages: read the prefixes, run only the query, return the states at the exit layer."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Self, TypeAlias

from torch import Tensor

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.model_settings import remember_place
from ridgerank.errors import StoreError
from ridgerank.records import State
from ridgerank.store.codec import StoredPrefixes
from ridgerank.store.layout import PackedPrefix
from ridgerank.store.page_store import ByteLRU, CacheCounts, PageStore
from ridgerank.store.probe import require_model

PageKey: TypeAlias = tuple[str, int, str | None]
"""Page, checksum and basis: what a prefix in memory depends on, whichever store it was read from."""
QueryPages: TypeAlias = tuple[str, Sequence[str]]


@dataclass(frozen=True, slots=True, eq=False)
class ShallowStates:
    """What one pass gives."""

    states: Tensor
    """(pages, width), float32: the raw state of each page, read at the position asked for (eq. 5)."""
    reading_ms: float
    compute_ms: float


class ShallowPass:
    """One model over one store, for any number of threads; pages are cached, if `cache_bytes` is not 0."""

    def __init__(self, backbone: Backbone, store: PageStore, *, cache_bytes: int = 1 << 30) -> None:
        require_model(store, backbone)
        remember_place(store.lineage, backbone.name)
        self.backbone = backbone
        self.store = store
        self._cache: ByteLRU[PageKey, PackedPrefix] | None = ByteLRU(cache_bytes) if cache_bytes else None

    def over(self, store: PageStore) -> Self:
        """The same model and the same cache over another store, or over a later version of this one."""
        if store.lineage != self.store.lineage:
            require_model(store, self.backbone)
        other = copy(self)
        other.store = store
        return other

    def run(
        self,
        query: str,
        page_ids: Sequence[str],
        *,
        state: State = "last",
        unstored: Mapping[str, PackedPrefix] | None = None,
    ) -> ShallowStates:
        """Run a query over pages, in the order given; pages in no store have their prefix in `unstored`."""
        return self.run_lists([(query, page_ids)], state=state, unstored=unstored)

    def run_lists(
        self,
        lists: Sequence[QueryPages],
        *,
        state: State = "last",
        unstored: Mapping[str, PackedPrefix] | None = None,
    ) -> ShallowStates:
        """Run several queries, each over its own pages, in one pass; states come in the order given."""
        if not lists or any(not page_ids for _, page_ids in lists):
            raise StoreError("no pages to run the query over; expected at least one")
        start = self.backbone.clock()
        prefixes = self._read([page_id for _, page_ids in lists for page_id in page_ids], unstored or {})
        read = self.backbone.clock()
        owners = [number for number, (_, page_ids) in enumerate(lists) for _ in page_ids]
        states = self.backbone.states(
            [query for query, _ in lists], prefixes, state=state, owners=owners if len(lists) > 1 else None
        )
        return ShallowStates(states, 1000 * (read - start), 1000 * (self.backbone.clock() - read))

    def run_both(self, query: str, page_ids: Sequence[str]) -> dict[State, Tensor]:
        """The last and the mean state of a query over pages, (pages, width) each, from one pass."""
        return self.backbone.both_states(query, self._read(page_ids, {}))

    def attend(self, query: str, page_id: str, *, state: State = "last") -> tuple[Tensor, PackedPrefix]:
        """What the query's last position, or the mean of its own, attends to on one page, as stored."""
        packed = self._read_packed([page_id])
        pages = StoredPrefixes(packed, device=self.backbone.device)
        return self.backbone.attention(query, pages, state=state), packed[0]

    def cache_counts(self) -> CacheCounts:
        """Hits, misses and size of the cache; all zeros where there is none."""
        return self._cache.counts() if self._cache is not None else CacheCounts()

    def _read(self, page_ids: Sequence[str], unstored: Mapping[str, PackedPrefix]) -> StoredPrefixes:
        stored = list(dict.fromkeys(page_id for page_id in page_ids if page_id not in unstored))
        packed = dict(zip(stored, self._read_packed(stored), strict=True)) if stored else {}
        pages = [unstored[page_id] if page_id in unstored else packed[page_id] for page_id in page_ids]
        return StoredPrefixes(pages, device=self.backbone.device)

    def _read_packed(self, page_ids: Sequence[str]) -> list[PackedPrefix]:
        if self._cache is None:
            return self.store.read_prefixes(page_ids)
        entries, basis = self.store.catalog.entries(page_ids), self.store.lineage.storage.basis
        keys: list[PageKey] = [(entry.page_id, entry.checksum, basis) for entry in entries]
        held = {key: self._cache.get(key) for key in dict.fromkeys(keys)}
        missing = [key for key, page in held.items() if page is None]
        read = self.store.read_prefixes([page_id for page_id, *_ in missing]) if missing else []
        for key, page in zip(missing, read, strict=True):
            self._cache.put(key, page)
            held[key] = page
        return [page for page in map(held.get, keys) if page is not None]
