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
        self._layers: dict[str, list[tuple[Tensor, ...]]] = {}
        """Every array of each page by name, cut into its layers at once rather than one by one."""
        self._numbers = pages[0].numbers
        self._wait = wait
        self._scales: dict[tuple[str, int, torch.dtype], Tensor] = {}
        """Of all pages, by name; those of one layer at a time."""
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
        chosen = slice(start, start + keys.shape[0])
        if self._numbers.symmetric:
            self._fill_symmetric(chosen, layer, keys, values)
        else:
            self._fill_packed(chosen, layer, keys, values)

    def _fill_symmetric(self, chosen: slice, layer: int, keys: Tensor, values: Tensor) -> None:
        copy_padded(self._of_layer("keys", layer, chosen), keys)
        copy_padded(self._of_layer("values", layer, chosen), values)
        keys.mul_(self._layer_scales("key_scales", layer, 1, keys)[chosen])
        values.mul_(self._layer_scales("value_scales", layer, values.shape[2], values)[chosen])

    def _fill_packed(self, chosen: slice, layer: int, keys: Tensor, values: Tensor) -> None:
        numbers = self._numbers
        counts = [page.count for page in self._pages[chosen]]
        unpack_codes(self._of_layer("keys", layer, chosen), counts, numbers.key_bits, keys)
        unpack_codes(self._of_layer("values", layer, chosen), counts, numbers.value_bits, values)
        key_groups = numbers.count_groups(keys.shape[2])
        for part, names, length, dim in (
            (keys, ("key_scales", "key_minima"), key_groups, -2),
            (values, ("value_scales", "value_minima"), values.shape[2], -1),
        ):
            steps, minima = (self._layer_scales(name, layer, length, part)[chosen] for name in names)
            restore_groups(part, steps, minima, dim=dim, group=numbers.group)

    def _of_layer(self, name: str, layer: int, chosen: slice) -> list[Tensor]:
        """An array of each chosen page, at one stored layer."""
        if name not in self._layers:
            self._layers[name] = [getattr(page, name).unbind() for page in self._pages]
        return [layers[layer] for layers in self._layers[name][chosen]]

    def _layer_scales(self, name: str, layer: int, length: int, like: Tensor) -> Tensor:
        """Scales of all pages as numbers, (pages, heads, `length`, …), made once for all parts of a layer."""
        key = (name, layer, like.dtype)
        if key not in self._scales:
            scales = self._of_layer(name, layer, slice(None))
            if self._numbers.symmetric:
                one = -2 if name == "key_scales" else -1
                scales = [each.unsqueeze(one) for each in scales]
            self._scales = {known: kept for known, kept in self._scales.items() if known[1] == layer}
            self._scales[key] = stack_padded(scales, length).view(SCALE_DTYPE).to(like.dtype)
        return self._scales[key]
