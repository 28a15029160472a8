"""Stored prefixes as the decoder reads them: one layer at a time, back in floating point."""

from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (its usual name)

from ridgerank.store.cuda_staging import DevicePrefix
from ridgerank.store.layout import PackedPrefix
from ridgerank.store.quantize import SCALE_DTYPE


class StoredPrefixes:
    """A `PrefixBatch` over int8 pages in memory, on the CPU or a device.

    `wait(layer)` is called before a stored layer is used, for pages that are still being read.
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
        """A batch over pages as the store returns them; they are copied only to another device."""
        return cls([_to_device(page, device) for page in pages], join_layer=join_layer, wait=wait)

    def fill(self, index: int, keys: Tensor, values: Tensor) -> None:
        """Write decoder layer `index` of every page into `keys` and `values`, padding with zeros.

        Pages are stacked as int8 codes and converted at once: a small operation per page would take longer
        than the conversion, and would block other requests while the interpreter runs it.
        """
        layer = index - self.join_layer
        if self._wait is not None:
            self._wait(layer)
        key_scales = torch.stack([page.key_scales[layer] for page in self._pages]).view(SCALE_DTYPE)
        value_scales = self._stack_padded([page.value_scales[layer].unsqueeze(-1) for page in self._pages])
        keys.copy_(self._stack_padded([page.keys[layer] for page in self._pages]))
        keys.mul_(key_scales.unsqueeze(-2).to(keys.dtype))
        values.copy_(self._stack_padded([page.values[layer] for page in self._pages]))
        values.mul_(value_scales.view(SCALE_DTYPE).to(values.dtype))

    def _stack_padded(self, parts: Sequence[Tensor]) -> Tensor:
        """(pages, kv_heads, longest page, …) from (kv_heads, positions, …) each, padded with zeros."""
        longest = max(part.shape[1] for part in parts)
        padding = [longest - part.shape[1] for part in parts]
        return torch.stack(
            [
                F.pad(part, (0, 0, 0, count)) if count else part
                for part, count in zip(parts, padding, strict=True)
            ]
        )


def _to_device(page: PackedPrefix, device: torch.device | None) -> DevicePrefix:
    names = ("keys", "values", "key_scales", "value_scales", "positions", "visual")
    arrays: dict[str, Tensor] = {name: torch.from_numpy(getattr(page, name)).to(device) for name in names}
    return DevicePrefix(**arrays, next_position=page.next_position, grid=page.grid)
