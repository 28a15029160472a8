"""Stored prefixes as the decoder reads them: one layer at a time, back in floating point."""

from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor

from ridgerank.errors import StoreError
from ridgerank.store.bit_packing import copy_padded, stack_padded, unpack_codes
from ridgerank.store.cuda_staging import DevicePrefix
from ridgerank.store.layout import PackedPrefix
from ridgerank.store.quantize import SCALE_DTYPE, restore_groups


class StoredPrefixes:
    """A `PrefixBatch` over compressed pages in memory, on the CPU or a device.

    `wait(layer)` is called before a stored layer is used, for pages that are still being read.
    """

    def __init__(
        self, pages: Sequence[DevicePrefix], *, join_layer: int, wait: Callable[[int], None] | None = None
    ) -> None:
        if any(page.numbers != pages[0].numbers or page.shared is not pages[0].shared for page in pages):
            raise StoreError("pages of several stores in one batch; run the query over each store by itself")
        self._pages = pages
        self._numbers = pages[0].numbers
        self._wait = wait
        self._shared: tuple[Tensor, Tensor] | None = None
        shared = pages[0].shared
        if shared is not None:
            device = pages[0].keys.device
            self._shared = (
                torch.from_numpy(shared.keys).to(device),
                torch.from_numpy(shared.values).to(device),
            )
        self._shared_count = 0 if shared is None else shared.count
        self.join_layer = join_layer
        self.exit_layer = join_layer + pages[0].keys.shape[0]
        self.lengths = torch.tensor([self._shared_count + page.count for page in pages])
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
        """A batch over pages as the store returns them; they are copied only to another device."""
        return cls([DevicePrefix.of(page, device) for page in pages], join_layer=join_layer, wait=wait)

    def fill(self, index: int, keys: Tensor, values: Tensor, *, start: int = 0) -> None:
        """Write decoder layer `index` of pages from `start` on; padding is finite."""
        layer = index - self.join_layer
        if self._wait is not None:
            self._wait(layer)
        if self._shared is not None:
            keys[:, :, : self._shared_count] = self._shared[0][layer]
            values[:, :, : self._shared_count] = self._shared[1][layer]
            keys, values = keys[:, :, self._shared_count :], values[:, :, self._shared_count :]
        pages = self._pages[start : start + keys.shape[0]]
        if self._numbers.symmetric:
            self._fill_symmetric(pages, layer, keys, values)
        else:
            self._fill_packed(pages, layer, keys, values)

    def _fill_symmetric(
        self, pages: Sequence[DevicePrefix], layer: int, keys: Tensor, values: Tensor
    ) -> None:
        copy_padded([page.keys[layer] for page in pages], keys)
        copy_padded([page.values[layer] for page in pages], values)
        keys.mul_(_stack_scales([page.key_scales[layer].unsqueeze(-2) for page in pages], 1, keys))
        scales = [page.value_scales[layer].unsqueeze(-1) for page in pages]
        values.mul_(_stack_scales(scales, values.shape[2], values))

    def _fill_packed(self, pages: Sequence[DevicePrefix], layer: int, keys: Tensor, values: Tensor) -> None:
        counts, numbers = [page.count for page in pages], self._numbers
        unpack_codes([page.keys[layer] for page in pages], counts, numbers.key_bits, keys)
        unpack_codes([page.values[layer] for page in pages], counts, numbers.value_bits, values)
        key_groups = numbers.count_groups(keys.shape[2])
        for part, names, length, dim in (
            (keys, ("key_scales", "key_minima"), key_groups, -2),
            (values, ("value_scales", "value_minima"), values.shape[2], -1),
        ):
            steps, minima = (
                _stack_scales([getattr(page, name)[layer] for page in pages], length, part) for name in names
            )
            restore_groups(part, steps, minima, dim=dim, group=numbers.group)


def _stack_scales(parts: Sequence[Tensor], length: int, like: Tensor) -> Tensor:
    """Scales of pages, (heads, at most `length`, …) each, as numbers: (pages, heads, `length`, …)."""
    return stack_padded(parts, length).view(SCALE_DTYPE).to(like.dtype)
