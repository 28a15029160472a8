"""Stored pages joined with a query's own keys and values, a few pages at a time.

In floating point the keys and values of twenty pages are larger than a processor's cache. So only a few pages
are unpacked, joined and attended to before the next ones take their memory.
"""

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from torch import Tensor

from ridgerank.backbones.prefix import Geometry, PrefixBatch

_CACHED_BYTES = 4 << 20
"""Keys and values that are unpacked at once on a CPU; twice and four times as much was slower."""


class JoinedKeysAndValues(NamedTuple):
    """Some pairs of a page and a suffix: keys and values of the page, then of the suffix."""

    pairs: slice
    keys: Tensor
    """(pairs, kv_heads, longest page + suffix, head_dim)."""
    values: Tensor
    """(pairs, kv_heads, longest page + suffix, head_dim)."""


class JoinedPages:
    """The memory in which pages and suffixes are joined, layer after layer."""

    def __init__(
        self, prefixes: PrefixBatch, geometry: Geometry, *, pairs: int, suffix: int, like: Tensor
    ) -> None:
        self._prefixes = prefixes
        self._pairs = pairs
        self._page = int(prefixes.lengths.max())
        shape = (geometry.kv_heads, self._page + suffix, geometry.head_dim)
        page_bytes = 2 * like.element_size() * prod(shape)
        self._at_once = max(1, _CACHED_BYTES // page_bytes) if like.device.type == "cpu" else pairs
        self._at_once = min(self._at_once, pairs)
        self._keys, self._values = (like.new_empty(self._at_once, *shape) for _ in range(2))

    def join(self, index: int, keys: Tensor, values: Tensor) -> Iterator[JoinedKeysAndValues]:
        """Layer `index` of the pages with the suffixes' rotated `keys` and their `values`, in order.

        What is yielded is overwritten by the next. Of one page for all suffixes the memory is written once.
        """
        pages, page = self._prefixes.lengths.shape[0], self._page
        keys, values = (part.expand(self._pairs, -1, -1, -1) for part in (keys, values))
        for start in range(0, self._pairs, self._at_once):
            pairs = slice(start, min(start + self._at_once, self._pairs))
            joined = (self._keys[: pairs.stop - start], self._values[: pairs.stop - start])
            if pages == self._pairs:
                self._prefixes.fill(index, *(part[:, :, :page] for part in joined), start=start)
            elif start == 0:
                self._prefixes.fill(index, *(part[:1, :, :page] for part in joined))
                for part in joined:
                    part[1:, :, :page] = part[:1, :, :page]
            for part, own in zip(joined, (keys, values), strict=True):
                part[:, :, page:] = own[pairs]
            yield JoinedKeysAndValues(pairs, *joined)
