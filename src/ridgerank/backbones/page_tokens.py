"""A page on its way into the decoder: token ids, visual features and rotary positions."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class PageTokens:
    """A page as the decoder receives it."""

    ids: Tensor
    """(positions,) int64."""
    visual: Tensor
    """(positions,) bool: where the page itself stands."""
    features: Tensor | None
    """(visual positions, width): what the vision tower puts there; None where the page is text."""
    positions: Tensor
    """(axes, positions) int64: rotary positions."""
    grid: tuple[int, int]
    """Rows and columns of the visual positions."""
    pieces: tuple[str, ...] | None = None
    """(visual positions,): the characters each stands for, where the page is text."""
    layer_features: tuple[Tensor, ...] = ()
    """(visual positions, width) each: what is added there behind layer 0, 1, ..., where a family does so."""


def merge_layer_features(pages: Sequence[PageTokens]) -> tuple[Tensor, ...]:
    """`layer_features` of pages in one batch, layer by layer, page behind page."""
    return tuple(torch.cat(layer) for layer in zip(*(page.layer_features for page in pages), strict=True))
