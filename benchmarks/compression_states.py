"""States over pages stored in several ways, each page encoded once for all of them."""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import interleaved_seconds
from experiments.reproduce.stages.checkpoint import Arrays, save_arrays, short_digest
from ridgerank.backbones.base import Backbone
from ridgerank.records import Page
from ridgerank.store.layout import block_shape
from ridgerank.store.page_store import PageStore
from ridgerank.store.rerender import rerender_pages
from ridgerank.store.setting_compressor import SettingCompressor
from ridgerank.store.storage_setting import StorageSetting
from ridgerank.store.stored_prefixes import StoredPrefixes

_PAGES_PER_PART = 32


def run_settings(
    folder: Path,
    store: str,
    queries: Sequence[str],
    page_ids: NDArray[np.str_],
    backbone: Callable[[], Backbone],
    settings: Sequence[StorageSetting],
    *,
    done: Callable[[int], None],
) -> dict[StorageSetting, tuple[NDArray[np.float32], float]]:
    """States (queries, candidates, dim) and mean bytes per page, by setting.

    `page_ids` is (queries, candidates). Results stay in `folder` by setting: an interrupted run goes on, and
    only new settings are computed.
    """
    pages = np.unique(page_ids)
    digest = short_digest([*queries, *page_ids.ravel().tolist()])
    folders = {setting: folder / short_digest([str(setting)]) / digest for setting in settings}
    for start in range(0, len(pages), _PAGES_PER_PART):
        part = pages[start : start + _PAGES_PER_PART].tolist()
        paths = {setting: folders[setting] / f"{start:06d}.npz" for setting in settings}
        missing = [setting for setting, path in paths.items() if not path.exists()]
        if missing:
            model = backbone()
            with PageStore.open(store) as opened:
                batches = rerender_pages(opened, part, max_pixels=model.page_budget)
                arrays = _run_part(model, chain.from_iterable(batches), queries, page_ids, missing)
            for setting in missing:
                save_arrays(paths[setting], arrays[setting])
        done(len(part))
    return {setting: _collect(folders[setting], page_ids.shape) for setting in settings}


def _run_part(
    model: Backbone,
    pages: Iterable[Page],
    queries: Sequence[str],
    page_ids: NDArray[np.str_],
    settings: Sequence[StorageSetting],
) -> dict[StorageSetting, Arrays]:
    """Each page encoded once, stored in every way, and read by the queries that have it as a candidate."""
    compressor = SettingCompressor(model, settings)
    depth = max(setting.exit_layer for setting in settings)
    positions: list[list[int]] = []
    states: dict[StorageSetting, list[NDArray[np.float32]]] = {setting: [] for setting in settings}
    nbytes: dict[StorageSetting, list[int]] = {setting: [] for setting in settings}
    for page in pages:
        [prefix] = model.encode([model.content(page)], exit_layer=depth)
        of_page = np.argwhere(page_ids == page.page_id)
        texts = [queries[number] for number in of_page[:, 0].tolist()]
        positions += of_page.tolist()
        for setting in settings:
            packed = compressor.compress(prefix, page, setting)
            stored = StoredPrefixes.of([packed], join_layer=0, device=model.device)
            states[setting].append(model.states(texts, stored).cpu().numpy())
            nbytes[setting] += [block_shape(packed).nbytes] * len(of_page)
    candidates = np.array(positions, dtype=np.int64)
    return {
        setting: {
            "candidates": candidates,
            "states": np.concatenate(states[setting]),
            "nbytes": np.array(nbytes[setting]),
        }
        for setting in settings
    }


def _collect(folder: Path, shape: tuple[int, ...]) -> tuple[NDArray[np.float32], float]:
    parts = [dict(np.load(path)) for path in sorted(folder.glob("*.npz"))]
    candidates, states, nbytes = (
        np.concatenate([part[name] for part in parts]) for name in ("candidates", "states", "nbytes")
    )
    in_order = np.empty((*shape, states.shape[-1]), dtype=np.float32)
    in_order[tuple(candidates.T)] = states
    return in_order, float(nbytes.mean())


def time_settings(
    backbone: Backbone, pages: Sequence[Page], query: str, settings: Sequence[StorageSetting], *, repeats: int
) -> dict[StorageSetting, float]:
    """Median seconds of a query over these pages, by setting, the settings taking turns."""
    compressor = SettingCompressor(backbone, settings)
    depth = max(setting.exit_layer for setting in settings)
    encoded = backbone.encode([backbone.content(page) for page in pages], exit_layer=depth)
    batches = {
        setting: StoredPrefixes.of(
            [compressor.compress(prefix, page, setting) for prefix, page in zip(encoded, pages, strict=True)],
            join_layer=0,
            device=backbone.device,
        )
        for setting in settings
    }
    runs = {
        str(setting): (lambda batch=batch: backbone.states([query], batch))
        for setting, batch in batches.items()
    }
    seconds = interleaved_seconds(runs, repeats=repeats)
    return {setting: seconds[str(setting)] for setting in settings}
