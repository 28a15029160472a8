"""A page as a decoder sees it: keys and values, layer by layer, before any compression."""

from dataclasses import dataclass, replace
from typing import Protocol

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

    def require_layers(self, join_layer: int, exit_layer: int) -> None:
        """Refuse layers that the decoder does not have, before anything is read."""
        if not 0 <= join_layer < exit_layer <= self.layers:
            raise BackboneError(
                f"layers [{join_layer}, {exit_layer}) of a model of {self.layers} layers; "
                f"wanted 0 <= join layer < exit layer <= {self.layers}"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """One page's keys and values at layers [join_layer, exit_layer), uncompressed."""

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
    pieces: tuple[str, ...] | None = None
    """(visual positions,): the characters each stands for, where the page is text."""

    def layers(self, start: int, stop: int) -> "Prefix":
        """The same page at layers `start` to `stop` − 1 of those held; nothing is copied."""
        return replace(self, keys=self.keys[start:stop], values=self.values[start:stop])


class PrefixBatch(Protocol):
    """K pages' prefixes, padded on the right to the longest, handed out one layer at a time."""

    @property
    def lengths(self) -> Tensor:
        """(K,) int64: how many positions of each page are real."""

    @property
    def next_positions(self) -> Tensor:
        """(K,) int64: where the suffix starts, page by page."""

    @property
    def join_layer(self) -> int:
        """The first layer held."""

    @property
    def exit_layer(self) -> int:
        """One past the last layer held."""

    def fill(self, index: int, keys: Tensor, values: Tensor, *, start: int = 0) -> None:
        """Write decoder layer `index` into `keys` and `values`: (pages, kv_heads, positions, head_dim) each.

        These are as many pages as there is memory for, from page `start` on, and max(lengths) positions.

        The caller owns the memory, of its own dtype and device, and keeps room for the suffix behind it:
        nothing is concatenated. Padding must be finite; no query attends to it.
        """
