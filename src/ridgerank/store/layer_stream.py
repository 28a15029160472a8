"""The prefixes of one request, read layer by layer while the model computes on the layers before."""

from collections.abc import Sequence
from concurrent.futures import Future, wait
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ridgerank.store import layout
from ridgerank.store.layout import PackedPrefix
from ridgerank.store.page_store import PageStore
from ridgerank.store.prefix_readers import read_whole, run_parallel

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
