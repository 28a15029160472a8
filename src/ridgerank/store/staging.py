"""Prefixes on their way to a CUDA device: read into pinned memory, copied on a stream of their own.

The only module of the store that imports torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ridgerank.errors import StoreError
from ridgerank.store import layout
from ridgerank.store.layout import Block
from ridgerank.store.read import PageStore

_DTYPES = {"|i1": torch.int8, "<f2": torch.float16, "<f4": torch.float32, "<i4": torch.int32, "|b1": torch.bool}


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
    """A pinned buffer on the host, its twin on the device and the stream between them; reused by every request."""

    def __init__(self, capacity_bytes: int, device: torch.device) -> None:
        self._host = torch.empty(capacity_bytes, dtype=torch.uint8, pin_memory=True)
        self._device = torch.empty(capacity_bytes, dtype=torch.uint8, device=device)
        self._stream = torch.cuda.Stream(device)
        self._copied = torch.cuda.Event()

    def load(self, store: PageStore, page_ids: Sequence[str]) -> list[DevicePrefix]:
        """The prefixes of pages on the device; kernels queued after this call find them whole.

        They are valid until the next call, which waits for work already queued on the current stream.
        """
        needed = store.prefix_nbytes(page_ids)
        if needed > self._host.numel():
            raise StoreError(f"prefixes of {needed} bytes for a staging buffer of {self._host.numel()}")
        self._copied.synchronize()  # the last request's copy still reads the pinned buffer
        places, blocks = store.buffers(page_ids, self._host.numpy())
        store.read_prefixes(page_ids, out=self._host.numpy())
        computing = torch.cuda.current_stream(self._device.device)
        self._stream.wait_stream(computing)
        with torch.cuda.stream(self._stream):
            self._device[:needed].copy_(self._host[:needed], non_blocking=True)
            self._copied.record(self._stream)
        computing.wait_event(self._copied)
        loaded, start = [], 0
        for place, block in zip(places, blocks, strict=True):
            buffer = self._device[start : start + place.nbytes]
            loaded.append(device_prefix(layout.read_header(block), buffer))
            start += place.nbytes
        return loaded


def device_prefix(block: Block, buffer: Tensor) -> DevicePrefix:
    """The prefix in a block held by a (bytes,) uint8 tensor, as views on it, on whatever device it is."""
    arrays: dict[str, Tensor] = {}
    for name, span in block.spans().items():
        dtype, size = _DTYPES[span.dtype.str], span.dtype.itemsize
        strides = [stride // size for stride in span.strides]
        # A view as another type needs a whole number of elements; blocks are padded to 64 bytes.
        arrays[name] = buffer.view(dtype).as_strided(
            span.shape, strides, buffer.view(dtype).storage_offset() + span.offset // size
        )
    return DevicePrefix(**arrays, next_position=block.next_position, grid=block.grid)
