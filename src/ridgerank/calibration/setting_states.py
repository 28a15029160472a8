"""States of queries over pages stored in several ways, each page encoded once, kept on disk in parts."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgerank.atomic import replace_file
from ridgerank.backbones.base import Backbone
from ridgerank.calibration.hooks import TuningHook
from ridgerank.lineage import fingerprint
from ridgerank.ragged import Floats
from ridgerank.records import Candidate, Query, State
from ridgerank.store.layout import block_shape
from ridgerank.store.page_store import PageStore
from ridgerank.store.rerender import BATCH_PAGES, PageLocation, require_locations, require_rendered
from ridgerank.store.setting_compressor import SettingCompressor
from ridgerank.store.storage_setting import StorageSetting
from ridgerank.store.stored_prefixes import StoredPrefixes

_PAGES_PER_PART = 4 * BATCH_PAGES
_PAIRS_PER_PASS = 32
"""Each query runs beside a copy of its page: this bounds the memory."""


class SettingStates:
    """States of every query over its candidates, by setting."""

    def __init__(
        self,
        folder: Path,
        backbone: Backbone,
        store: PageStore,
        lists: Mapping[Query, Sequence[Candidate]],
        state: State,
    ) -> None:
        self._backbone = backbone
        self._store = store
        self._state = state
        self._join_layer = store.lineage.join_layer
        pairs = [
            (query.text, candidate.page_id) for query, candidates in lists.items() for candidate in candidates
        ]
        self._queries = [text for text, _ in pairs]
        self._members: dict[str, list[int]] = {}
        for member, (_, page_id) in enumerate(pairs):
            self._members.setdefault(page_id, []).append(member)
        self.page_ids = sorted(self._members)
        """The different candidates."""
        model = store.lineage.teacher_fingerprint()
        self._folder = folder / fingerprint(
            {"model": model, "join_layer": self._join_layer, "state": state, "pairs": pairs}
        )

    def compute(
        self, settings: Sequence[StorageSetting], documents: Sequence[Path], hook: TuningHook
    ) -> None:
        """Compute and keep what is missing; pages are found again in `documents`."""
        starts = range(0, len(self.page_ids), _PAGES_PER_PART)
        missing = {
            start: [setting for setting in settings if not self._path(setting, start).exists()]
            for start in starts
        }
        unread = [page_id for start in starts if missing[start] for page_id in self._part(start)]
        locations = require_locations(self._store, unread, documents=documents) if unread else []
        hook.settings_planned(len(settings), len(self.page_ids), len(unread))
        compressor = SettingCompressor(self._backbone, settings, join_layer=self._join_layer)
        for start in starts:
            if missing[start]:
                part = set(self._part(start))
                of_part = [location for location in locations if location.ref.page_id in part]
                self._compute_part(start, of_part, missing[start], compressor, hook)

    def read(self, setting: StorageSetting) -> Floats:
        """(members, dim): the states of all pairs, list after list."""
        parts = list(self._read(setting))
        states = np.concatenate([part["states"] for part in parts])
        ordered = np.empty(states.shape, dtype=np.float64)
        ordered[np.concatenate([part["members"] for part in parts])] = states
        return ordered

    def bytes_per_page(self, setting: StorageSetting) -> float:
        """Mean bytes of a page as stored on disk."""
        return float(np.concatenate([part["nbytes"] for part in self._read(setting)]).mean())

    def _compute_part(
        self,
        start: int,
        locations: Sequence[PageLocation],
        settings: Sequence[StorageSetting],
        compressor: SettingCompressor,
        hook: TuningHook,
    ) -> None:
        deepest = max(setting.exit_layer for setting in settings)
        members: list[int] = []
        states: dict[StorageSetting, list[NDArray[np.float32]]] = {setting: [] for setting in settings}
        nbytes: dict[StorageSetting, list[int]] = {setting: [] for setting in settings}
        for batch_start in range(0, len(locations), BATCH_PAGES):
            batch = locations[batch_start : batch_start + BATCH_PAGES]
            pages = require_rendered(batch, max_pixels=self._backbone.page_budget)
            contents = [self._backbone.content(page) for page in pages]
            encoded = self._backbone.encode(contents, exit_layer=deepest, join_layer=self._join_layer)
            for page, prefix in zip(pages, encoded, strict=True):
                members += self._members[page.page_id]
                for setting in settings:
                    packed = compressor.compress(prefix, page, setting)
                    stored = StoredPrefixes.of(
                        [packed], join_layer=self._join_layer, device=self._backbone.device
                    )
                    states[setting] += self._run(self._members[page.page_id], stored)
                    nbytes[setting].append(block_shape(packed).nbytes)
            hook.pages_measured(len(batch))
        for setting in settings:
            with replace_file(self._path(setting, start)) as scratch, scratch.open("wb") as file:
                np.savez(
                    file,
                    allow_pickle=False,
                    members=np.array(members),
                    states=np.concatenate(states[setting]),
                    nbytes=np.array(nbytes[setting]),
                )

    def _run(self, members: Sequence[int], page: StoredPrefixes) -> Iterator[NDArray[np.float32]]:
        """The states (pairs, dim) of a page's queries, some at a time."""
        for start in range(0, len(members), _PAIRS_PER_PASS):
            texts = [self._queries[member] for member in members[start : start + _PAIRS_PER_PASS]]
            yield self._backbone.states(texts, page, state=self._state).cpu().numpy()

    def _part(self, start: int) -> list[str]:
        return self.page_ids[start : start + _PAGES_PER_PART]

    def _path(self, setting: StorageSetting, start: int) -> Path:
        return self._folder / fingerprint({"setting": str(setting)}) / f"{start:06d}.npz"

    def _read(self, setting: StorageSetting) -> Iterator[dict[str, NDArray[Any]]]:
        for start in range(0, len(self.page_ids), _PAGES_PER_PART):
            with np.load(self._path(setting, start)) as saved:
                yield dict(saved)
