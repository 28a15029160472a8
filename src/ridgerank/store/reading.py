"""Prefixes of one request: kept in memory, read layer by layer while the model computes, and unpacked."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from threading import Lock
from types import TracebackType
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ridgerank.backbones.prefix import PrefixBatch
from ridgerank.byte_lru import ByteLRU
from ridgerank.errors import StoreError
from ridgerank.store import layout
from ridgerank.store.codec import SCALE_DTYPE, copy_padded, restore_groups, stack_padded, unpack_codes
from ridgerank.store.layout import PackedPrefix, block_shape
from ridgerank.store.page_store import PageStore
from ridgerank.store.prefix_readers import read_whole, run_parallel


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """Hits and misses of a cache so far, and what it holds now."""

    hits: int
    """Pages that were in the cache, or already being read for another thread."""
    misses: int
    """Pages read from the store."""
    pages: int
    nbytes: int


class PrefixCache:
    """Reads prefixes through a bounded memory; safe for any number of threads.

    A page that two threads need at once is read once. A page larger than the whole cache is not held.
    """

    def __init__(self, read: Callable[[Sequence[str]], list[PackedPrefix]], *, capacity_bytes: int) -> None:
        if capacity_bytes < 0:
            raise StoreError(f"a cache of {capacity_bytes} bytes, wanted 0 or more")
        self._read_pages = read
        self._lock = Lock()
        self._prefixes: ByteLRU[str, PackedPrefix] = ByteLRU(
            capacity_bytes, count_bytes=lambda prefix: block_shape(prefix).nbytes
        )
        self._pending: dict[str, Future[PackedPrefix]] = {}
        self._hits = self._misses = 0

    def read_prefixes(self, page_ids: Sequence[str]) -> list[PackedPrefix]:
        """The prefixes of pages, from memory where they are held."""
        prefixes: dict[str, PackedPrefix] = {}
        awaited: dict[str, Future[PackedPrefix]] = {}
        to_read: dict[str, Future[PackedPrefix]] = {}
        with self._lock:
            for page_id in dict.fromkeys(page_ids):
                if (prefix := self._prefixes.get(page_id)) is not None:
                    prefixes[page_id] = prefix
                elif page_id in self._pending:
                    awaited[page_id] = self._pending[page_id]
                else:
                    to_read[page_id] = self._pending[page_id] = Future()
            self._hits += len(prefixes) + len(awaited)
            self._misses += len(to_read)
        if to_read:
            prefixes |= self._read(to_read)
        prefixes |= {page_id: future.result() for page_id, future in awaited.items()}
        return [prefixes[page_id] for page_id in page_ids]

    def counts(self) -> CacheCounts:
        """Hits, misses and what is held now."""
        with self._lock:
            return CacheCounts(self._hits, self._misses, *self._prefixes.size())

    def _read(self, to_read: dict[str, Future[PackedPrefix]]) -> dict[str, PackedPrefix]:
        try:
            prefixes = dict(zip(to_read, self._read_pages(list(to_read)), strict=True))
        except BaseException as error:
            with self._lock:
                for page_id, future in to_read.items():
                    del self._pending[page_id]
                    future.set_exception(error)
            raise
        with self._lock:
            for page_id, prefix in prefixes.items():
                self._prefixes.put(page_id, prefix)
                del self._pending[page_id]
        for page_id, future in to_read.items():
            future.set_result(prefixes[page_id])
        return prefixes


_STEP_BYTES = 1 << 20
"""Layers of one page are read in pieces of about this size: smaller pieces cost more calls than they save."""
_FIRST_BYTES = 1 << 20
"""What is read of a page at first: more than a header and positions ever take, and of a small page all."""


class LayerStream:
    """The prefixes of pages, read layer 0 of every page first, then layer 1, and so on; a context manager.

    The first piece of a page has its header and as many layers as it holds: of a small page, all of them.
    On an object store, where a request costs more than its bytes, prefixes are read whole.
    """

    def __init__(
        self, store: PageStore, page_ids: Sequence[str], *, out: NDArray[np.uint8] | None = None
    ) -> None:
        ranges, buffers = store.buffers(page_ids, out)

        def read(index: int, start: int, stop: int) -> None:
            store.blocks.read(ranges[index], start, buffers[index][start:stop].data)

        if store.blocks.reads_whole:
            read_whole(store.blocks, ranges, buffers, store.threads)
            read_bytes = [buffer.size for buffer in buffers]
        else:
            read_bytes = [min(buffer.size, _FIRST_BYTES) for buffer in buffers]
            run_parallel(
                lambda index: read(index, 0, read_bytes[index]),
                len(buffers),
                threads=store.threads,
                helpers=store.blocks.threads - 1,
            )
        self.prefixes: list[PackedPrefix] = [layout.unpack(buffer, shared=store.shared) for buffer in buffers]
        """Views. Their positions and masks can be used at once, a layer after `wait`."""
        shapes = [layout.read_header(buffer) for buffer in buffers]
        widest = max((shape.layer_nbytes for shape in shapes), default=1)
        self._layers_per_step = max(1, _STEP_BYTES // widest)
        self._steps: list[list[Future[None]]] = []
        for first in range(0, max((shape.layers for shape in shapes), default=0), self._layers_per_step):
            spans = [
                (
                    max(present, shape.layer_start(first) if first else 0),
                    shape.layer_start(first + self._layers_per_step),
                )
                for shape, present in zip(shapes, read_bytes, strict=True)
            ]
            self._steps.append(
                [
                    store.threads.submit(read, index, start, stop)
                    for index, (start, stop) in enumerate(spans)
                    if start < stop
                ]
            )

    def wait(self, layer: int) -> None:
        """Return once stored layers 0 to `layer` of every page have been read."""
        for step in self._steps[: layer // self._layers_per_step + 1]:
            for future in step:
                future.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop reading: after this no thread writes to the memory any more."""
        wait([future for step in self._steps for future in step if not future.cancel()])


class StoredPrefixes(PrefixBatch):
    """Compressed pages in memory, on the CPU or a device.

    `wait(layer)` is called before a stored layer is used, for pages that are still being read.
    """

    def __init__(
        self,
        pages: Sequence[PackedPrefix],
        *,
        wait: Callable[[int], None] | None = None,
        device: torch.device | None = None,
    ) -> None:
        """Take pages as the store returns them; they are copied only to another device."""
        if any(page.numbers != pages[0].numbers or page.shared is not pages[0].shared for page in pages):
            raise StoreError("pages of several stores in one batch; run the query over each store by itself")
        self._pages = pages
        self._device = device
        self._layers: dict[str, list[tuple[Tensor, ...]]] = {}
        """Every array of each page by name, cut into its layers at once rather than one by one."""
        self._numbers = pages[0].numbers
        self._wait = wait
        self._scales: dict[tuple[str, int, torch.dtype], Tensor] = {}
        """Of all pages, by name; those of one layer at a time."""
        self._shared: tuple[Tensor, Tensor] | None = None
        shared = pages[0].shared
        if shared is not None:
            self._shared = (
                torch.from_numpy(shared.keys).to(device),
                torch.from_numpy(shared.values).to(device),
            )
        self._shared_count = 0 if shared is None else shared.count
        self.exit_layer = pages[0].keys.shape[0]
        self.lengths = torch.tensor([self._shared_count + len(page.positions) for page in pages])
        self.next_positions = torch.tensor([page.next_position for page in pages])

    def fill(self, layer: int, keys: Tensor, values: Tensor, *, start: int = 0) -> None:
        """Write decoder layer `layer` of pages from `start` on; padding is finite."""
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
        counts = [len(page.positions) for page in self._pages[chosen]]
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
            self._layers[name] = [
                torch.from_numpy(getattr(page, name)).to(self._device).unbind() for page in self._pages
            ]
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
