"""Stage 5: the calibration sample's states at every layer, as a store cut there would give them."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.reproduce.stages.checkpoint import Arrays, compute_in_parts, short_digest
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.decoder import Prefix
from ridgerank.lineage import Keep
from ridgerank.records import Page
from ridgerank.store.codec import StoredPrefixes, compress
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import rerender_pages

_PAGES_PER_PART = 32


def run_layers(
    folder: Path,
    store: str,
    queries: Sequence[str],
    page_ids: NDArray[np.str_],
    backbone: Callable[[], Backbone],
    keep: Keep,
    *,
    done: Callable[[int], None],
) -> NDArray[np.float32]:
    """(queries, candidates, layers, dim): the state after 1, 2, … layers over the compressed page.

    Each page is encoded once, at full depth, for all its queries; `page_ids` is (queries, candidates).
    """
    pages = np.unique(page_ids)

    def compute(items: range) -> Arrays:
        model = backbone()
        positions: list[list[int]] = []
        states: list[NDArray[np.float32]] = []
        with PageStore.open(store) as opened:
            of_part = pages[items.start : items.stop].tolist()
            for batch in rerender_pages(opened, of_part, max_pixels=model.page_budget):
                contents = [model.content(page) for page in batch]
                encoded = model.encode(contents, exit_layer=model.geometry.layers)
                for page, prefix in zip(batch, encoded, strict=True):
                    of_page = np.argwhere(page_ids == page.page_id)
                    positions += of_page.tolist()
                    texts = [queries[number] for number in of_page[:, 0].tolist()]
                    states.append(_states_by_layer(model, texts, prefix, page, keep))
        return {"places": np.array(positions, dtype=np.int64), "states": np.concatenate(states)}

    part_folder = folder / short_digest([str(keep), *queries, *page_ids.ravel().tolist()])
    arrays = compute_in_parts(part_folder, len(pages), _PAGES_PER_PART, compute, done=done)
    states = np.empty((*page_ids.shape, *arrays["states"].shape[1:]), dtype=np.float32)
    states[tuple(arrays["places"].T)] = arrays["states"]
    return states


def _states_by_layer(
    model: Backbone, queries: Sequence[str], prefix: Prefix, page: Page, keep: Keep
) -> NDArray[np.float32]:
    """(queries, layers, dim)."""
    layers = []
    for depth in range(1, model.geometry.layers + 1):
        packed = compress(prefix.layers(0, depth), keep)
        stored = StoredPrefixes([packed], device=model.device)
        layers.append(model.states(queries, stored).cpu().numpy())
    return np.stack(layers, axis=1)
