"""Prefixes copied to a CUDA device: read into pinned memory, then copied on a separate stream.

`ranking.shallow` uses it where the model is on a CUDA device and no pages are cached in memory.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Self

import torch
from torch import Tensor

from ridgerank.store import layout
from ridgerank.store.block_arrays import BlockShape, array_spans
from ridgerank.store.layout import PackedPrefix, SharedPrefix
from ridgerank.store.number_format import NumberFormat
from ridgerank.store.page_store import PageStore

_DTYPES = {"|i1": torch.int8, "|u1": torch.uint8, "<u2": torch.uint16}
NUMBER_ARRAYS = ("keys", "values", "key_scales", "value_scales", "key_minima", "value_minima")
"""The arrays of a block that the pass needs; a block of format 1 has no minima."""


@dataclass(frozen=True, slots=True, eq=False)
class DevicePrefix:
    """The numbers of a `PackedPrefix` as tensors."""

    keys: Tensor
    values: Tensor
    key_scales: Tensor
    value_scales: Tensor
    key_minima: Tensor | None
    value_minima: Tensor | None
    count: int
    """Positions held here; those of `shared` stand before them."""
    next_position: int
    numbers: NumberFormat
    shared: SharedPrefix | None

    @classmethod
    def of(cls, page: PackedPrefix, device: torch.device | None) -> Self:
        """A page as the store returns it; its arrays are copied only to another device."""
        arrays: dict[str, Any] = {}
        for name in NUMBER_ARRAYS:
            array = getattr(page, name)
            arrays[name] = None if array is None else torch.from_numpy(array).to(device)
        return cls(
            **arrays,
            count=len(page.positions),
            next_position=page.next_position,
            numbers=page.numbers,
            shared=page.shared,
        )


class CudaStaging:
    """Two pinned buffers, two buffers on the device and a stream for copies; requests use them in turn.

    Reading and copying the prefixes of one request can overlap with kernels still queued for the one before.
    """

    def __init__(self, capacity_bytes: int, device: torch.device) -> None:
        self._slots = deque(_Slot.allocate(capacity_bytes, device) for _ in range(2))
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._device = device

    def load(self, store: PageStore, page_ids: Sequence[str]) -> list[DevicePrefix]:
        """Read prefixes and copy them to the device, before kernels that are queued afterwards.

        The result is valid for kernels queued before the next call.
        """
        compute_stream = torch.cuda.current_stream(self._device)
        self._slots[0].kernels_done.record(compute_stream)
        self._slots.rotate()
        slot = self._slots[0]
        slot.copied.synchronize()  # the copy before last still reads this pinned buffer
        ranges, blocks = store.buffers(page_ids, slot.host.numpy())
        store.read_prefixes(page_ids, out=slot.host.numpy())
        ends = [0, *accumulate(prefix_range.nbytes for prefix_range in ranges)]
        self._stream.wait_event(slot.kernels_done)
        with torch.cuda.stream(self._stream):
            slot.device[: ends[-1]].copy_(slot.host[: ends[-1]], non_blocking=True)
            slot.copied.record(self._stream)
        compute_stream.wait_event(slot.copied)
        return [
            view_device_prefix(layout.read_header(block), slot.device[start:end], shared=store.shared)
            for block, (start, end) in zip(blocks, pairwise(ends), strict=True)
        ]


@dataclass(frozen=True, slots=True, eq=False)
class _Slot:
    host: Tensor
    device: Tensor
    copied: torch.cuda.Event
    """The copy from `host` to `device` is done."""
    kernels_done: torch.cuda.Event
    """Kernels no longer read `device`."""

    @classmethod
    def allocate(cls, capacity_bytes: int, device: torch.device) -> Self:
        return cls(
            torch.empty(capacity_bytes, dtype=torch.uint8, pin_memory=True),
            torch.empty(capacity_bytes, dtype=torch.uint8, device=device),
            torch.cuda.Event(),  # type: ignore[no-untyped-call]
            torch.cuda.Event(),  # type: ignore[no-untyped-call]
        )


def view_device_prefix(
    shape: BlockShape, buffer: Tensor, *, shared: SharedPrefix | None = None
) -> DevicePrefix:
    """The prefix in a block held by a (bytes,) uint8 tensor on any device, as views on it."""
    arrays: dict[str, Any] = dict.fromkeys(NUMBER_ARRAYS)
    for name, span in array_spans(shape).items():
        if name not in NUMBER_ARRAYS:
            continue
        dtype, size = _DTYPES[span.dtype.str], span.dtype.itemsize
        strides = [stride // size for stride in span.strides]
        typed = buffer.view(dtype)
        arrays[name] = typed.as_strided(span.shape, strides, typed.storage_offset() + span.offset // size)
    return DevicePrefix(
        **arrays,
        count=shape.positions,
        next_position=shape.next_position,
        numbers=shape.numbers,
        shared=shared if shape.shared else None,
    )
