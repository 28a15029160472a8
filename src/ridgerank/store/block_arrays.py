"""Which arrays a page's block holds, and where in its bytes each of them lies.

A block of format 1 has the paper's int8, one of format 2 packed codes of any width. This module knows shapes
only; `layout.py` writes and reads the bytes.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from ridgerank.store.number_format import PAPER_NUMBERS, NumberFormat, packed_rows

HEADER_BYTES = 64
ALIGNMENT = 64
"""Of every array of a block of format 1."""
PACKED_ALIGNMENT = 16
"""Of every array of a block of format 2: smaller arrays, so less between them."""
SCALE = np.dtype("<u2")
"""The bits of a bfloat16, which numpy does not know."""

ArrayType: TypeAlias = tuple[np.dtype[Any], tuple[int, ...]]
"""A type and a shape."""


@dataclass(frozen=True, slots=True)
class Span:
    """Where one array lies in a block: a type, a shape and, in bytes, an offset and strides."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BlockShape:
    """The shape of one page's block, from which the offsets of all its arrays follow."""

    layers: int
    kv_heads: int
    positions: int
    head_dim: int
    next_position: int
    grid: tuple[int, int]
    """Rows and columns of the page's visual positions before any was dropped."""
    numbers: NumberFormat = PAPER_NUMBERS
    shared: int = 0
    """Positions before the page that lie elsewhere, once for all pages."""
    total: int = 0
    """Positions of the whole prefix before any was dropped; only blocks of format 2 need it."""

    @property
    def format(self) -> int:
        """The paper's numbers are written as the first release wrote them."""
        return 1 if self.numbers.symmetric else 2

    @property
    def layers_start(self) -> int:
        """Where layer 0 starts."""
        return HEADER_BYTES + sum(self.align(_nbytes(*array)) for array in self.page_arrays().values())

    @property
    def layer_nbytes(self) -> int:
        """Bytes of one layer, padding counted."""
        return sum(self.align(_nbytes(*array)) for array in self.layer_arrays().values())

    @property
    def nbytes(self) -> int:
        """Bytes of the whole block."""
        return _block_nbytes(self)

    def layer_start(self, layer: int) -> int:
        """Where a layer starts; where the block ends for a layer past the last."""
        return self.layers_start + min(layer, self.layers) * self.layer_nbytes

    def align(self, nbytes: int) -> int:
        """Where the next array may start, `nbytes` behind the start of one."""
        alignment = ALIGNMENT if self.format == 1 else PACKED_ALIGNMENT
        return -(-nbytes // alignment) * alignment

    def page_arrays(self) -> dict[str, ArrayType]:
        """The type and shape of each array before the layers, in their order in the block."""
        if self.format == 1:
            return {
                "positions": (np.dtype("<i4"), (self.positions,)),
                "visual": (np.dtype(np.bool_), (self.positions,)),
            }
        bitmap = (np.dtype(np.uint8), (-(-self.total // 8),))
        return {"kept_bits": bitmap, "visual_bits": bitmap}

    def layer_arrays(self) -> dict[str, ArrayType]:
        """The type and shape of each array of a layer, in their order in the block."""
        heads, count, dim = self.kv_heads, self.positions, self.head_dim
        if self.format == 1:
            codes = (np.dtype(np.int8), (heads, count, dim))
            return {
                "keys": codes,
                "values": codes,
                "key_scales": (SCALE, (heads, dim)),
                "value_scales": (SCALE, (heads, count)),
            }
        packed, numbers = np.dtype(np.uint8), self.numbers
        key_groups = (SCALE, (heads, numbers.count_groups(count), dim))
        value_groups = (SCALE, (heads, count, numbers.count_groups(dim)))
        return {
            "keys": (packed, (heads, packed_rows(count, numbers.key_bits), dim)),
            "values": (packed, (heads, packed_rows(count, numbers.value_bits), dim)),
            "key_scales": key_groups,
            "key_minima": key_groups,
            "value_scales": value_groups,
            "value_minima": value_groups,
        }


@lru_cache(maxsize=1024)
def _block_nbytes(shape: BlockShape) -> int:
    return shape.layer_start(shape.layers)


@lru_cache(maxsize=1024)
def array_spans(shape: BlockShape) -> Mapping[str, Span]:
    """Where each array lies in a block, by its name."""
    spans: dict[str, Span] = {}
    offset = HEADER_BYTES
    for name, (dtype, dims) in shape.page_arrays().items():
        spans[name] = Span(dtype, dims, offset, _strides(dtype, dims))
        offset += shape.align(_nbytes(dtype, dims))
    for name, (dtype, dims) in shape.layer_arrays().items():
        strides = (shape.layer_nbytes, *_strides(dtype, dims))
        spans[name] = Span(dtype, (shape.layers, *dims), offset, strides)
        offset += shape.align(_nbytes(dtype, dims))
    return MappingProxyType(spans)


def _strides(dtype: np.dtype[Any], dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(dtype.itemsize * math.prod(dims[axis + 1 :]) for axis in range(len(dims)))


def _nbytes(dtype: np.dtype[Any], dims: tuple[int, ...]) -> int:
    return dtype.itemsize * math.prod(dims)
