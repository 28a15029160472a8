"""Stored prefixes as the decoder wants them: one layer at a time, back in floating point."""

from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor

from ridgerank.store.layout import PackedPrefix
from ridgerank.store.quantize import SCALE_DTYPE, dequantize
from ridgerank.store.staging import DevicePrefix


class StoredPrefixes:
    """A `PrefixBatch` over int8 pages in memory, on the CPU or a device.

    `wait(layer)` is called before a stored layer is touched, for pages that are still being read.
    """

    def __init__(
        self, pages: Sequence[DevicePrefix], *, join_layer: int, wait: Callable[[int], None] | None = None
    ) -> None:
        self._pages = pages
        self._wait = wait
        self.join_layer = join_layer
        self.exit_layer = join_layer + pages[0].keys.shape[0]
        self.lengths = torch.tensor([page.keys.shape[2] for page in pages])
        self.next_positions = torch.tensor([page.next_position for page in pages])

    @classmethod
    def of(
        cls, pages: Sequence[PackedPrefix], *, join_layer: int, wait: Callable[[int], None] | None = None
    ) -> Self:
        """A batch over pages as the store hands them out; nothing is copied."""
        return cls([_tensors(page) for page in pages], join_layer=join_layer, wait=wait)

    def fill(self, index: int, keys: Tensor, values: Tensor) -> None:
        """Write decoder layer `index` of every page into `keys` and `values`, padding with zeros."""
        layer = index - self.join_layer
        if self._wait is not None:
            self._wait(layer)
        for row, page in enumerate(self._pages):
            length = page.keys.shape[2]
            key_scales = page.key_scales[layer].view(SCALE_DTYPE).unsqueeze(-2)
            value_scales = page.value_scales[layer].view(SCALE_DTYPE).unsqueeze(-1)
            dequantize(page.keys[layer], key_scales, keys[row, :, :length])
            dequantize(page.values[layer], value_scales, values[row, :, :length])
            keys[row, :, length:].zero_()
            values[row, :, length:].zero_()


def _tensors(page: PackedPrefix) -> DevicePrefix:
    return DevicePrefix(
        keys=torch.from_numpy(page.keys),
        values=torch.from_numpy(page.values),
        key_scales=torch.from_numpy(page.key_scales),
        value_scales=torch.from_numpy(page.value_scales),
        positions=torch.from_numpy(page.positions),
        visual=torch.from_numpy(page.visual),
        next_position=page.next_position,
        grid=page.grid,
    )
