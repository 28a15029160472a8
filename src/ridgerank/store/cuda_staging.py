"""Prefixes on their way to a CUDA device: read into pinned memory, copied on a stream of their own.

The only module of the store that imports torch.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Self

import torch
from torch import Tensor

from ridgerank.store import layout
from ridgerank.store.layout import Block
from ridgerank.store.page_store import PageStore

_DTYPES = {
    "|i1": torch.int8,
    "<u2": torch.uint16,
    "<i4": torch.int32,
    "|b1": torch.bool,
}


@dataclass(frozen=True, slots=True, eq=False)
class DevicePrefix:
    """A `PackedPrefix` whose arrays are tensors, views on one buffer."""

    keys: Tensor
    values: Tensor
    key_scales: Tensor
    value_scales: Tensor
    positions: Tensor
    visual: Tensor
    next_position: int
    grid: tuple[int, int]


class Staging:
    """Two pinned buffers, their twins on the device and the stream between; requests take them in turn.

    While kernels work on one request's prefixes, the next one's are read and copied.
    """

    def __init__(self, capacity_bytes: int, device: torch.device) -> None:
        self._slots = deque(_Slot.allocate(capacity_bytes, device) for _ in range(2))
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._device = device

    def load(self, store: PageStore, page_ids: Sequence[str]) -> list[DevicePrefix]:
        """Bring prefixes to the device; kernels queued on the current stream afterwards find them whole.

        They are valid for kernels queued before the next call.
        """
        computing = torch.cuda.current_stream(self._device)
        self._slots[0].worked_on.record(computing)
        self._slots.rotate()
        slot = self._slots[0]
        slot.copied.synchronize()  # the copy before last still reads this pinned buffer
        places, blocks = store.buffers(page_ids, slot.host.numpy())
        store.read_prefixes(page_ids, out=slot.host.numpy())
        ends = [0, *accumulate(place.nbytes for place in places)]
        self._stream.wait_event(slot.worked_on)
        with torch.cuda.stream(self._stream):
            slot.device[: ends[-1]].copy_(slot.host[: ends[-1]], non_blocking=True)
            slot.copied.record(self._stream)
        computing.wait_event(slot.copied)
        return [
            device_prefix(layout.read_header(block), slot.device[start:end])
            for block, (start, end) in zip(blocks, pairwise(ends), strict=True)
        ]


@dataclass(frozen=True, slots=True, eq=False)
class _Slot:
    host: Tensor
    device: Tensor
    copied: torch.cuda.Event
    """The device has what the host had."""
    worked_on: torch.cuda.Event
    """Kernels are done with what the device had."""

    @classmethod
    def allocate(cls, capacity_bytes: int, device: torch.device) -> Self:
        return cls(
            torch.empty(capacity_bytes, dtype=torch.uint8, pin_memory=True),
            torch.empty(capacity_bytes, dtype=torch.uint8, device=device),
            torch.cuda.Event(),  # type: ignore[no-untyped-call]
            torch.cuda.Event(),  # type: ignore[no-untyped-call]
        )


def device_prefix(block: Block, buffer: Tensor) -> DevicePrefix:
    """See the prefix in a block held by a (bytes,) uint8 tensor, as views on it, on whatever device it is."""
    arrays: dict[str, Tensor] = {}
    for name, span in layout.spans_of(block).items():
        dtype, size = _DTYPES[span.dtype.str], span.dtype.itemsize
        strides = [stride // size for stride in span.strides]
        viewed = buffer.view(dtype)
        arrays[name] = viewed.as_strided(span.shape, strides, viewed.storage_offset() + span.offset // size)
    return DevicePrefix(**arrays, next_position=block.next_position, grid=block.grid)
