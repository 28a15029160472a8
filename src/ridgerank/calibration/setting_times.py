"""How long a query takes over pages stored in several ways, in memory, compared in one run."""

import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ridgerank.backbones.base import Backbone
from ridgerank.calibration.hooks import TuningHook
from ridgerank.records import Candidate, Query
from ridgerank.store.page_store import PageStore
from ridgerank.store.rerender import rerender_pages
from ridgerank.store.setting_compressor import SettingCompressor
from ridgerank.store.storage_setting import StorageSetting
from ridgerank.store.stored_prefixes import StoredPrefixes

_TIMED_PAGES = 8
_TIMED_REPEATS = 7


def time_settings(
    backbone: Backbone,
    store: PageStore,
    lists: Mapping[Query, Sequence[Candidate]],
    settings: Sequence[StorageSetting],
    documents: Sequence[Path],
    hook: TuningHook,
) -> dict[StorageSetting, float]:
    """The time of a query over some pages, each setting in turn with the first, divided by that of the first.

    Two settings are in memory at once.
    """
    query, candidates = next(iter(lists.items()))
    page_ids = [candidate.page_id for candidate in candidates[:_TIMED_PAGES]]
    join_layer, deepest = store.lineage.join_layer, max(setting.exit_layer for setting in settings)
    encoded = [
        (page, prefix)
        for pages in rerender_pages(store, page_ids, max_pixels=backbone.page_budget, documents=documents)
        for page, prefix in zip(
            pages,
            backbone.encode(
                [backbone.content(page) for page in pages], exit_layer=deepest, join_layer=join_layer
            ),
            strict=True,
        )
    ]
    compressor = SettingCompressor(backbone, settings, join_layer=join_layer)

    def store_pages(setting: StorageSetting) -> StoredPrefixes:
        packed = [compressor.compress(prefix, page, setting) for page, prefix in encoded]
        return StoredPrefixes.of(packed, join_layer=join_layer, device=backbone.device)

    def run(batch: StoredPrefixes) -> float:
        start = time.perf_counter()
        backbone.states([query.text], batch).cpu()
        return time.perf_counter() - start

    current, ratios = store_pages(settings[0]), {settings[0]: 1.0}
    for setting in settings[1:]:
        batch = store_pages(setting)
        pairs = [(run(current), run(batch)) for _ in range(_TIMED_REPEATS + 1)][1:]
        ratios[setting] = statistics.median(after / before for before, after in pairs)
        hook.settings_timed(1)
    return ratios
