"""Reading while computing: the next request's prefixes, or the next layers of this one's."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ridgerank.store import layout
from ridgerank.store.layout import PackedPrefix
from ridgerank.store.page_store import PageStore

_STEP_BYTES = 1 << 20
"""Layers of one page are read in pieces of about this size: smaller ones cost more calls than they gain."""


def prefetched(
    store: PageStore, requests: Iterable[Sequence[str]], *, buffer_nbytes: int
) -> Iterator[list[PackedPrefix]]:
    """Yield the prefixes of each request in turn, the next request being read while one is worked on.

    Two buffers of `buffer_nbytes` alternate: what was yielded is valid until the next is asked for.
    """
    buffers = [np.empty(buffer_nbytes, dtype=np.uint8) for _ in range(2)]
    ahead: Future[list[PackedPrefix]] | None = None
    for number, page_ids in enumerate(requests):
        following = store.submit(page_ids, out=buffers[number % 2])
        if ahead is not None:
            yield ahead.result()
        ahead = following
    if ahead is not None:
        yield ahead.result()


class LayerStream:
    """The prefixes of pages, read layer 0 of every page first, then layer 1, and so on; a context manager.

    Where a request costs more than its bytes, on an object store, each is read in one piece.
    """

    def __init__(
        self, store: PageStore, page_ids: Sequence[str], *, out: NDArray[np.uint8] | None = None
    ) -> None:
        places, buffers = store.buffers(page_ids, out)

        def read(index: int, start: int, stop: int) -> None:
            store.blocks.read(places[index], start, buffers[index][start:stop].data)

        def head(index: int) -> layout.Block:
            if store.blocks.whole:
                read(index, 0, places[index].nbytes)
                return layout.read_header(buffers[index])
            read(index, 0, layout.ALIGNMENT)
            shape = layout.read_header(buffers[index])
            read(index, layout.ALIGNMENT, shape.layers_start)
            return shape

        shapes = list(store.threads.map(head, range(len(places))))
        self.prefixes: list[PackedPrefix] = [layout.unpack(buffer) for buffer in buffers]
        """Views whose positions and masks are there at once, whose layers are there after `wait`."""
        widest = max((shape.layer_nbytes for shape in shapes), default=1)
        self._layers_per_step = max(1, _STEP_BYTES // widest)
        self._steps: list[list[Future[None]]] = []
        if store.blocks.whole:
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
            for reading in step:
                reading.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop reading: after this nobody writes to the memory any more."""
        wait([reading for step in self._steps for reading in step if not reading.cancel()])
