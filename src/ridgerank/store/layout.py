"""Every name and byte of the store on disk; `docs/store-format.md` says the same in words.

A page's prefix is one block of bytes, little endian, every array starting at a multiple of 64:

    header          64 bytes, `_HEADER`
    positions       int32 (positions,)
    visual          one byte each (positions,), 0 or 1
    layer 0, 1, …   keys          int8  (kv_heads, positions, head_dim)
                    values        int8  (kv_heads, positions, head_dim)
                    key scales    bfloat16 (kv_heads, head_dim)
                    value scales  bfloat16 (kv_heads, positions)

Layers follow each other, so a block read from its start is ready for the model layer by layer.
This module knows nothing of Lance, files or torch, nor what a scale means.
"""

import hashlib
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ridgerank.errors import ArtifactError, StoreError

FORMAT = 1
"""Raised with every change after which older stores can no longer be read."""

FORMAT_KEY = "ridgerank:format"
LINEAGE_KEY = "ridgerank:lineage"
RETRIEVER_KEY = "ridgerank:retriever"
"""Schema metadata of the dataset."""

PAGE_ID = "page_id"
REFERENCES = "references"
SOURCE = "source"
TEXT = "text"
THUMBNAIL = "thumbnail"
POSITIONS = "positions"
CHECKSUM = "checksum"
PREFIX = "prefix"
VECTORS = "vectors"
VECTORS_CHECKSUM = "vectors_checksum"
"""Columns of the dataset, in this order; the last two are absent until a retriever fills them."""

CALIBRATIONS = "calibrations"
SOURCES = "_sources.json"
"""What may lie beside the dataset in a local directory: fitted readouts, and where documents were found."""

EMBEDDINGS = "embeddings"
"""Beside the dataset, the pages' text embeddings: a directory that may be removed at any time."""

LANCE_FILE_VERSION = "2.1"
"""In this version a blob's bytes lie in the fragment's data file, at the position its description gives."""

ALIGNMENT = 64
CHECKSUM_BYTES = 16

Bytes: TypeAlias = bytes | memoryview | NDArray[np.uint8]
"""The types a block may have."""

_MAGIC = b"RRPREFIX"
_HEADER = struct.Struct("<8s9IxxxxQ8x")
"""Magic, format, bytes of a scale, layers, kv_heads, positions, head_dim, next_position, grid, bytes."""
_SCALE = np.dtype("<u2")
"""The bits of a bfloat16, which numpy does not know."""


@dataclass(frozen=True, slots=True, eq=False)
class PackedPrefix:
    """One page's prefix as it is stored: int8 keys and values with their scales."""

    keys: NDArray[np.int8]
    """(layers, kv_heads, positions, head_dim)."""
    values: NDArray[np.int8]
    """(layers, kv_heads, positions, head_dim)."""
    key_scales: NDArray[np.uint16]
    """(layers, kv_heads, head_dim): the bits of bfloat16 numbers."""
    value_scales: NDArray[np.uint16]
    """(layers, kv_heads, positions): the bits of bfloat16 numbers."""
    positions: NDArray[np.int32]
    """(positions,): which positions of the whole prefix were kept, increasing."""
    visual: NDArray[np.bool_]
    """(positions,): which of the kept positions hold the page image."""
    next_position: int
    """The rotary position at which the query suffix starts."""
    grid: tuple[int, int]
    """Rows and columns of the page's visual positions before any was dropped."""

    @property
    def cells(self) -> NDArray[np.int64]:
        """Which cells of the grid, in raster order, the kept visual positions are.

        Every position that is not visual is kept, so a position less the number of those before it
        is its cell.
        """
        not_visual = np.cumsum(~self.visual)
        return (self.positions.astype(np.int64) - not_visual)[self.visual]


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

    @property
    def layers_start(self) -> int:
        """Where layer 0 starts."""
        return _HEADER.size + _aligned(4 * self.positions) + _aligned(self.positions)

    @property
    def layer_nbytes(self) -> int:
        """Bytes of one layer, padding counted."""
        return sum(_aligned(nbytes) for nbytes in self.layer_parts().values())

    @property
    def nbytes(self) -> int:
        """Bytes of the whole block."""
        return self.layer_start(self.layers)

    def layer_start(self, layer: int) -> int:
        """Where a layer starts; where the block ends for a layer past the last."""
        return self.layers_start + min(layer, self.layers) * self.layer_nbytes

    def layer_parts(self) -> dict[str, int]:
        """The bytes of each array of a layer, in their order in the block."""
        codes = self.kv_heads * self.positions * self.head_dim
        return {
            "keys": codes,
            "values": codes,
            "key_scales": self.kv_heads * self.head_dim * _SCALE.itemsize,
            "value_scales": self.kv_heads * self.positions * _SCALE.itemsize,
        }


@lru_cache(maxsize=1024)
def array_spans(shape: BlockShape) -> Mapping[str, Span]:
    """Where each array of a `PackedPrefix` lies in a block, by the name of its field."""
    n, heads, dim = shape.positions, shape.kv_heads, shape.head_dim
    after_positions = _HEADER.size + _aligned(4 * n)
    spans = {
        "positions": Span(np.dtype("<i4"), (n,), _HEADER.size, (4,)),
        "visual": Span(np.dtype(np.bool_), (n,), after_positions, (1,)),
    }
    layer_arrays: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {
        "keys": (np.dtype(np.int8), (heads, n, dim)),
        "values": (np.dtype(np.int8), (heads, n, dim)),
        "key_scales": (_SCALE, (heads, dim)),
        "value_scales": (_SCALE, (heads, n)),
    }
    offset = shape.layers_start
    for name, nbytes in shape.layer_parts().items():
        dtype, dims = layer_arrays[name]
        inner = tuple(dtype.itemsize * math.prod(dims[axis + 1 :]) for axis in range(len(dims)))
        spans[name] = Span(dtype, (shape.layers, *dims), offset, (shape.layer_nbytes, *inner))
        offset += _aligned(nbytes)
    return MappingProxyType(spans)


def block_shape(prefix: PackedPrefix) -> BlockShape:
    """The shape of the block that holds `prefix`; arrays of other shapes or types are refused."""
    if prefix.keys.ndim != 4:
        raise StoreError(
            f"keys have shape {prefix.keys.shape}, wanted (layers, kv_heads, positions, head_dim)"
        )
    layers, kv_heads, positions, head_dim = prefix.keys.shape
    shape = BlockShape(layers, kv_heads, positions, head_dim, prefix.next_position, prefix.grid)
    for name, span in array_spans(shape).items():
        array: NDArray[Any] = getattr(prefix, name)
        if (array.shape, array.dtype) != (span.shape, span.dtype):
            raise StoreError(f"{name} are {array.dtype} {array.shape}, wanted {span.dtype} {span.shape}")
    return shape


def pack(prefix: PackedPrefix, *, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
    """Write the prefix as one block of bytes, into `out` where given; equal prefixes give equal bytes."""
    shape = block_shape(prefix)
    out = np.empty(shape.nbytes, dtype=np.uint8) if out is None else out
    out[:] = 0
    _HEADER.pack_into(
        out.data, 0, _MAGIC, FORMAT, _SCALE.itemsize, shape.layers, shape.kv_heads, shape.positions,
        shape.head_dim, shape.next_position, *shape.grid, shape.nbytes,
    )  # fmt: skip
    for name, view in _views(shape, out):
        view[...] = getattr(prefix, name)
    return out


def read_header(buffer: Bytes) -> BlockShape:
    """Read the shape of the block that starts with these bytes; at least `ALIGNMENT` of them are needed."""
    if _view(buffer).nbytes < _HEADER.size:
        raise StoreError(f"a prefix of {_view(buffer).nbytes} bytes, wanted at least {_HEADER.size}")
    magic, stored_format, scale_bytes, *sizes, rows, columns, nbytes = _HEADER.unpack_from(_view(buffer))
    if magic != _MAGIC:
        raise StoreError(f"a prefix that starts with {magic!r}, wanted {_MAGIC!r}: the store is damaged")
    if stored_format != FORMAT:
        raise ArtifactError(f"a prefix of format {stored_format}, wanted {FORMAT}: index the pages again")
    if scale_bytes != _SCALE.itemsize:
        raise StoreError(f"a prefix with scales of {scale_bytes} bytes, wanted 2: the store is damaged")
    layers, kv_heads, positions, head_dim, next_position = sizes
    shape = BlockShape(layers, kv_heads, positions, head_dim, next_position, (rows, columns))
    if shape.nbytes != nbytes:
        raise StoreError(f"a prefix of {nbytes} bytes whose shape needs {shape.nbytes}: the store is damaged")
    return shape


def unpack(buffer: Bytes) -> PackedPrefix:
    """The prefix in a block, as views on `buffer`: nothing is copied."""
    shape = read_header(buffer)
    if _view(buffer).nbytes < shape.nbytes:
        raise StoreError(f"a prefix of {shape.nbytes} bytes in {_view(buffer).nbytes}: the store is damaged")
    return PackedPrefix(**dict(_views(shape, buffer)), next_position=shape.next_position, grid=shape.grid)


def vectors_checksum(vectors: NDArray[np.float16]) -> bytes:
    """BLAKE2b-128 of a page's retriever vectors."""
    return hashlib.blake2b(np.ascontiguousarray(vectors).data, digest_size=CHECKSUM_BYTES).digest()


def checksum(page_id: str, text: str, thumbnail: bytes, block: Bytes) -> bytes:
    """BLAKE2b-128 of a page's id, text, thumbnail and block, each preceded by its length.

    References are left out: a page may be renamed without touching its bytes.
    """
    digest = hashlib.blake2b(digest_size=CHECKSUM_BYTES)
    for part in (page_id.encode(), text.encode(), thumbnail, block):
        digest.update(_view(part).nbytes.to_bytes(8, "little"))
        digest.update(_view(part))
    return digest.digest()


def _views(shape: BlockShape, buffer: Bytes) -> Iterator[tuple[str, NDArray[Any]]]:
    for name, span in array_spans(shape).items():
        yield name, np.ndarray(span.shape, span.dtype, buffer, span.offset, span.strides)


def _view(buffer: Bytes) -> memoryview:
    return buffer.data if isinstance(buffer, np.ndarray) else memoryview(buffer)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
