"""Uncompressed prefixes as a batch: for full-depth margins, and as the reference for compressed ones."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ridgerank.backbones.prefix import Prefix
from ridgerank.errors import BackboneError


class DensePrefixes:
    """A `PrefixBatch` over `Prefix` objects held in memory."""

    def __init__(self, prefixes: Sequence[Prefix], *, join_layer: int = 0) -> None:
        if not prefixes:
            raise BackboneError("no prefixes to run a query over; wanted at least one page")
        shapes = {(*prefix.keys.shape[:2], prefix.keys.shape[3]) for prefix in prefixes}
        if len(shapes) > 1:
            raise BackboneError(
                f"prefixes of differing (layers, kv_heads, head_dim) {sorted(shapes)} in one batch; "
                "encode them with the same backbone and layers"
            )
        self._prefixes = prefixes
        self._join_layer = join_layer
        self._lengths = torch.tensor([prefix.keys.shape[2] for prefix in prefixes])
        self._next_positions = torch.tensor([prefix.next_position for prefix in prefixes])

    @property
    def lengths(self) -> Tensor:
        """(K,) int64: how many positions of each page are real."""
        return self._lengths

    @property
    def next_positions(self) -> Tensor:
        """(K,) int64: where the suffix starts, page by page."""
        return self._next_positions

    @property
    def join_layer(self) -> int:
        """The first layer held."""
        return self._join_layer

    @property
    def exit_layer(self) -> int:
        """One past the last layer held."""
        return self._join_layer + self._prefixes[0].keys.shape[0]

    def fill(self, index: int, keys: Tensor, values: Tensor, *, start: int = 0) -> None:
        """Write decoder layer `index` of pages from `start` on, padding with zeros."""
        for row, prefix in enumerate(self._prefixes[start : start + keys.shape[0]]):
            length = prefix.keys.shape[2]
            keys[row, :, :length].copy_(prefix.keys[index - self._join_layer])
            values[row, :, :length].copy_(prefix.values[index - self._join_layer])
            keys[row, :, length:].zero_()
            values[row, :, length:].zero_()
