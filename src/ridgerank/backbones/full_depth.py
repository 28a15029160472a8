"""A page read to full depth by one query: what a cross encoder computes, and the target of eq. 6."""

from collections.abc import Sequence

from torch import Tensor

from ridgerank.backbones.base import Backbone, Content
from ridgerank.backbones.dense_prefixes import DensePrefixes


def full_margins(backbone: Backbone, query: str, pages: Sequence[Content]) -> Tensor:
    """Margins (pages,) at full depth on the uncompressed pages."""
    prefixes = DensePrefixes(backbone.encode(pages, exit_layer=backbone.geometry.layers))
    return backbone.targets([query], prefixes, targets=("margin",))["margin"]
