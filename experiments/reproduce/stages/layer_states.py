"""Stage 5: the calibration sample's states at every layer, as a store cut there would give them."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.reproduce.stages.checkpoint import Arrays, digest, in_parts
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.prefix import Prefix
from ridgerank.records import Page
from ridgerank.store.compress import compress
from ridgerank.store.page_store import PageStore
from ridgerank.store.pruning import Keep
from ridgerank.store.rerender import rerender_pages
from ridgerank.store.stored_prefixes import StoredPrefixes

_PAGES_A_PART = 32


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

    Pages go by once, at full depth, each with all its queries; `page_ids` is (queries, candidates).
    """
    pages = np.unique(page_ids)

    def make(items: range) -> Arrays:
        model = backbone()
        places: list[list[int]] = []
        states: list[NDArray[np.float32]] = []
        with PageStore.open(store) as opened:
            wanted = pages[items.start : items.stop].tolist()
            for batch in rerender_pages(opened, wanted, max_pixels=model.max_pixels):
                contents = [model.content(page) for page in batch]
                encoded = model.encode(contents, exit_layer=model.geometry.layers)
                for page, prefix in zip(batch, encoded, strict=True):
                    own = np.argwhere(page_ids == page.page_id)
                    places += own.tolist()
                    asked = [queries[number] for number in own[:, 0].tolist()]
                    states.append(_by_layer(model, asked, prefix, page, keep))
        return {"places": np.array(places, dtype=np.int64), "states": np.concatenate(states)}

    named = folder / digest([str(keep), *queries, *page_ids.ravel().tolist()])
    kept = in_parts(named, len(pages), _PAGES_A_PART, make, done=done)
    found = np.empty((*page_ids.shape, *kept["states"].shape[1:]), dtype=np.float32)
    found[tuple(kept["places"].T)] = kept["states"]
    return found


def _by_layer(
    model: Backbone, queries: Sequence[str], prefix: Prefix, page: Page, keep: Keep
) -> NDArray[np.float32]:
    """(queries, layers, dim)."""
    layers = []
    for depth in range(1, model.geometry.layers + 1):
        packed = compress(prefix.layers(0, depth), page.image, keep)
        stored = StoredPrefixes.of([packed], join_layer=0, device=model.device)
        layers.append(model.states(queries, stored).cpu().numpy())
    return np.stack(layers, axis=1)
