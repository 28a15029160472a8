"""The prefixes of one request, read layer by layer while the model computes on the layers before."""

from collections.abc import Sequence
from concurrent.futures import Future, wait
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ridgerank.store import layout
from ridgerank.store.block_arrays import HEADER_BYTES, BlockShape
from ridgerank.store.layout import PackedPrefix
from ridgerank.store.page_store import PageStore
from ridgerank.store.prefix_readers import read_whole

_STEP_BYTES = 1 << 20
"""Layers of one page are read in pieces of about this size: smaller pieces cost more calls than they save."""


class LayerStream:
    """The prefixes of pages, read layer 0 of every page first, then layer 1, and so on; a context manager.

    On an object store, where a request costs more than its bytes, prefixes are read whole.
    """

    def __init__(
        self, store: PageStore, page_ids: Sequence[str], *, out: NDArray[np.uint8] | None = None
    ) -> None:
        ranges, buffers = store.buffers(page_ids, out)

        def read(index: int, start: int, stop: int) -> None:
            store.blocks.read(ranges[index], start, buffers[index][start:stop].data)

        def read_head(index: int) -> BlockShape:
            read(index, 0, HEADER_BYTES)
            shape = layout.read_header(buffers[index])
            read(index, HEADER_BYTES, shape.layers_start)
            return shape

        if store.blocks.reads_whole:
            read_whole(store.blocks, ranges, buffers, store.threads)
            shapes = [layout.read_header(buffer) for buffer in buffers]
        else:
            shapes = list(store.threads.map(read_head, range(len(ranges))))
        self.prefixes: list[PackedPrefix] = [layout.unpack(buffer, shared=store.shared) for buffer in buffers]
        """Views. Their positions and masks can be used at once, a layer after `wait`."""
        widest = max((shape.layer_nbytes for shape in shapes), default=1)
        self._layers_per_step = max(1, _STEP_BYTES // widest)
        self._steps: list[list[Future[None]]] = []
        if store.blocks.reads_whole:
            return
        for first in range(0, max((shape.layers for shape in shapes), default=0), self._layers_per_step):
            last = first + self._layers_per_step
            step = [
                store.threads.submit(read, index, shape.layer_start(first), shape.layer_start(last))
                for index, shape in enumerate(shapes)
            ]
            self._steps.append(step)

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
