"""A page as a decoder sees it: its tokens, then keys and values, layer by layer, before any compression."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ridgerank.errors import BackboneError


@dataclass(frozen=True, slots=True)
class Geometry:
    """The shape of a decoder."""

    layers: int
    width: int
    query_heads: int
    kv_heads: int
    head_dim: int

    def require_layers(self, exit_layer: int) -> None:
        """Refuse layers that the decoder does not have, before anything is read."""
        if not 0 < exit_layer <= self.layers:
            raise BackboneError(
                f"exit layer {exit_layer} of a model of {self.layers} layers; expected 1 to {self.layers}"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """One page's keys and values at the layers below the exit layer, uncompressed."""

    keys: Tensor
    """(layers, kv_heads, positions, head_dim), after the rotary embedding: dropping positions is safe."""
    values: Tensor
    """(layers, kv_heads, positions, head_dim)."""
    visual: Tensor
    """(positions,) bool: which positions hold the page, its image or its text; the others hold system and
    instruction."""
    grid: tuple[int, int]
    """Rows and columns of the visual positions on the page; their product is the number of them."""
    next_position: int
    """The rotary position at which the query suffix starts."""

    def layers(self, start: int, stop: int) -> "Prefix":
        """The same page at layers `start` to `stop` − 1 of those held; nothing is copied."""
        return replace(self, keys=self.keys[start:stop], values=self.values[start:stop])


class PrefixBatch:
    """K pages' prefixes, padded on the right to the longest, handed out one layer at a time.

    These are uncompressed, for full-depth targets and as the reference for stored ones (`StoredPrefixes`).
    """

    lengths: Tensor
    """(K,) int64: how many positions of each page are real."""
    next_positions: Tensor
    """(K,) int64: where the suffix starts, page by page."""
    exit_layer: int
    """How many layers are held."""

    def __init__(self, prefixes: Sequence[Prefix]) -> None:
        if not prefixes:
            raise BackboneError("no prefixes to run a query over; wanted at least one page")
        shapes = {(*prefix.keys.shape[:2], prefix.keys.shape[3]) for prefix in prefixes}
        if len(shapes) > 1:
            raise BackboneError(
                f"prefixes of differing (layers, kv_heads, head_dim) {sorted(shapes)} in one batch; "
                "encode them with the same backbone and layers"
            )
        self._prefixes = prefixes
        self.lengths = torch.tensor([prefix.keys.shape[2] for prefix in prefixes])
        self.next_positions = torch.tensor([prefix.next_position for prefix in prefixes])
        self.exit_layer = prefixes[0].keys.shape[0]

    def fill(self, layer: int, keys: Tensor, values: Tensor, *, start: int = 0) -> None:
        """Write decoder layer `layer` into `keys` and `values`: (pages, kv_heads, positions, head_dim) each.

        These are as many pages as there is memory for, from page `start` on, and max(lengths) positions.

        The caller owns the memory, of its own dtype and device, and keeps room for the suffix after it:
        nothing is concatenated. Padding is finite; no query attends to it.
        """
        for row, prefix in enumerate(self._prefixes[start : start + keys.shape[0]]):
            length = prefix.keys.shape[2]
            keys[row, :, :length].copy_(prefix.keys[layer])
            values[row, :, :length].copy_(prefix.values[layer])
            keys[row, :, length:].zero_()
            values[row, :, length:].zero_()


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
    layer_features: tuple[Tensor, ...] = ()
    """(visual positions, width) each: what is added there behind layer 0, 1, ..., where a family does so."""


def merge_layer_features(pages: Sequence[PageTokens]) -> tuple[Tensor, ...]:
    """`layer_features` of pages in one batch, layer by layer, page behind page."""
    return tuple(torch.cat(layer) for layer in zip(*(page.layer_features for page in pages), strict=True))
