"""Why a page stands where it stands: which of its kept positions the query's last state attended to.

Attention says where the model looked, not what it concluded: the readout decides on all of the state.
"""

import io

import numpy as np
from PIL import Image

from ridgerank.errors import StoreError
from ridgerank.ranking.shallow import ShallowPass
from ridgerank.records import Explanation


def explain(shallow: ShallowPass, query: str, page_id: str, *, layer: int | None = None) -> Explanation:
    """Attention over a stored page at one of the stored layers, or its mean over all of them."""
    lineage = shallow.store.lineage
    first, end = lineage.join_layer, lineage.exit_layer
    if layer is not None and not first <= layer < end:
        raise StoreError(
            f"layer {layer} of a store that holds layers {first} to {end - 1}; ask for one of these"
        )
    layers = (first, end) if layer is None else (layer, layer + 1)
    attention, page = shallow.attend(query, page_id)
    chosen = slice(layers[0] - first, layers[1] - first)
    over_prefix = attention.over_prefix[chosen, 0].double().mean(dim=0).cpu().numpy()
    over_suffix = attention.over_suffix[chosen, 0].double().mean(dim=0).cpu().numpy()
    regions = shallow.backbone.regions(page.grid, _aspect(shallow, page_id))
    kept = page.cells
    visual = np.concatenate([np.zeros(page.shared_count, dtype=np.bool_), page.visual])
    return Explanation(
        query=query,
        page_id=page_id,
        reference=shallow.store.reference(page_id),
        layers=layers,
        grid=page.grid,
        kept=tuple(kept.tolist()),
        weights=tuple(over_prefix[visual].tolist()),
        regions=tuple((left, top, right, bottom) for left, top, right, bottom in regions[kept].tolist()),
        page_share=float(over_prefix[visual].sum()),
        # The suffix opens with the instruction's last token.
        instruction_share=float(over_prefix[~visual].sum() + over_suffix[0]),
        query_share=float(over_suffix[1:].sum()),
    )


def _aspect(shallow: ShallowPass, page_id: str) -> float:
    """The page's width over its height, by its thumbnail."""
    [page] = shallow.store.pages([page_id])
    if not page.thumbnail:
        raise StoreError(
            f"{shallow.store.reference(page_id)} was stored without a thumbnail, so its shape is unknown; "
            "index its document again"
        )
    with Image.open(io.BytesIO(page.thumbnail)) as image:
        return image.width / image.height
