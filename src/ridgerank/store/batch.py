"""Stored prefixes as the decoder wants them: one layer at a time, back in floating point."""

from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor

from ridgerank.store.layout import PackedPrefix
from ridgerank.store.quantize import SCALE_DTYPE
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
        cls,
        pages: Sequence[PackedPrefix],
        *,
        join_layer: int,
        wait: Callable[[int], None] | None = None,
        device: torch.device | None = None,
    ) -> Self:
        """A batch over pages as the store hands them out; nothing is copied unless to a device."""
        return cls([_tensors(page, device) for page in pages], join_layer=join_layer, wait=wait)

    def fill(self, index: int, keys: Tensor, values: Tensor) -> None:
        """Write decoder layer `index` of every page into `keys` and `values`, padding with zeros.

        Codes are converted page by page, scales applied to all pages at once: many small operations would
        each wait for the slowest thread, which costs more than the work.
        """
        layer = index - self.join_layer
        if self._wait is not None:
            self._wait(layer)
        longest = keys.shape[2]
        key_scales = torch.stack([page.key_scales[layer] for page in self._pages]).view(SCALE_DTYPE)
        value_scales = key_scales.new_zeros(*keys.shape[:3])
        for row, page in enumerate(self._pages):
            length = page.keys.shape[2]
            keys[row, :, :length].copy_(page.keys[layer])
            values[row, :, :length].copy_(page.values[layer])
            value_scales[row, :, :length].copy_(page.value_scales[layer].view(SCALE_DTYPE))
            if length < longest:
                keys[row, :, length:].zero_()
                values[row, :, length:].zero_()
        keys.mul_(key_scales.unsqueeze(-2).to(keys.dtype))
        values.mul_(value_scales.unsqueeze(-1).to(values.dtype))


def _tensors(page: PackedPrefix, device: torch.device | None) -> DevicePrefix:
    names = ("keys", "values", "key_scales", "value_scales", "positions", "visual")
    arrays: dict[str, Tensor] = {name: torch.from_numpy(getattr(page, name)).to(device) for name in names}
    return DevicePrefix(**arrays, next_position=page.next_position, grid=page.grid)
