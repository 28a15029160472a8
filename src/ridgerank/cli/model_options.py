"""The model a store was made with."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ridgerank.backbones.base import Backbone
    from ridgerank.store.page_store import PageStore


def backbone_for(
    store: "PageStore", name: str | None, *, device: str | None, dtype: str | None
) -> "Backbone":
    """The model a store was made with, by the name it was loaded by then or the one given now."""
    from ridgerank.backbones.load import load_backbone, parse_dtype
    from ridgerank.store.model_lineage import reading_of

    return load_backbone(
        name or store.lineage.backbone,
        device=device,
        dtype=parse_dtype(dtype),
        **reading_of(store.lineage),
    )
