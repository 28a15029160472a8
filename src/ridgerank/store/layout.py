"""Every name and byte of the store on disk; `docs/store-format.md` says the same in words.

A page's prefix is one block of bytes, little endian: a header of 64 bytes (`_HEADER`), which positions were
kept, then layer after layer, so that a block read from its start is ready for the model layer by layer.
`block_arrays.py` has the arrays and their offsets. This module knows nothing of Lance, files or torch, nor
what a scale means.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ridgerank.errors import ArtifactError, StoreError
from ridgerank.store.block_arrays import HEADER_BYTES, SCALE, BlockShape, array_spans
from ridgerank.store.number_format import PAPER_NUMBERS, NumberFormat

FORMATS = (1, 2)
"""Formats that can be read. The paper's numbers are written in the first, all others in the second."""

FORMAT_KEY = "ridgerank:format"
LINEAGE_KEY = "ridgerank:lineage"
RETRIEVER_KEY = "ridgerank:retriever"
SHARED_KEY = "ridgerank:shared"
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
NAMES_CHECKSUM = "names_checksum"
"""Stores of older releases have no such column."""
"""Columns of the dataset, in this order; the last two are absent until a retriever fills them."""
COLUMNS = (PAGE_ID, REFERENCES, SOURCE, TEXT, THUMBNAIL, POSITIONS, CHECKSUM, PREFIX)

LABELS = "labels"
"""A further column, absent until there is metadata: what is said of a page's documents, as `key=value`."""

CALIBRATIONS = "calibrations"
SOURCES = "_sources.json"
"""What may lie beside the dataset in a local directory: fitted readouts, and where documents were found."""

SHARED = "_shared.safetensors"
"""Beside the dataset of a store of format 2: keys and values of the positions before the page."""

SEALS = "_seals.json"
"""Beside a local dataset: digests of the files that say what the store holds (`manifest_seal.py`)."""

JUDGEMENTS = "judgements"
"""Beside the dataset in a local directory: what people said of pages in the browser."""

EMBEDDINGS = "embeddings"
"""Beside the dataset, the pages' text embeddings: a directory that may be removed at any time."""

LANCE_FILE_VERSION = "2.1"
"""In this version a blob's bytes lie in the fragment's data file, at the position its description gives."""

CHECKSUM_BYTES = 16

Bytes: TypeAlias = bytes | memoryview | NDArray[np.uint8]
"""The types a block may have."""

_MAGIC = b"RRPREFIX"
_HEADER = struct.Struct("<8s9IBBHQHxxI")
"""Magic, format, bytes of a scale, layers, kv_heads, positions, head_dim, next_position, grid; bits of keys,
bits of values, group; bytes; shared positions, positions of the whole prefix. In format 1 the last two and
the three before the bytes are 0; a group of 0 is none."""


@dataclass(frozen=True, slots=True, eq=False)
class SharedPrefix:
    """The positions before the page, which are the same for every page of a store."""

    keys: NDArray[np.float32]
    """(layers, kv_heads, positions, head_dim)."""
    values: NDArray[np.float32]
    """(layers, kv_heads, positions, head_dim)."""

    @property
    def count(self) -> int:
        """How many positions."""
        return int(self.keys.shape[2])


@dataclass(frozen=True, slots=True, eq=False)
class PackedPrefix:
    """One page's prefix as it is stored: keys and values as codes with their scales."""

    keys: NDArray[np.int8] | NDArray[np.uint8]
    """(layers, kv_heads, positions, head_dim) int8; packed, (layers, kv_heads, rows, head_dim) uint8."""
    values: NDArray[np.int8] | NDArray[np.uint8]
    """As `keys`."""
    key_scales: NDArray[np.uint16]
    """(layers, kv_heads, head_dim), packed (layers, kv_heads, groups, head_dim): the bits of bfloat16."""
    value_scales: NDArray[np.uint16]
    """(layers, kv_heads, positions), packed (layers, kv_heads, positions, groups): the bits of bfloat16."""
    positions: NDArray[np.int32]
    """(positions,): which positions of the whole prefix were kept, increasing; shared ones left out."""
    visual: NDArray[np.bool_]
    """(positions,): which of the kept positions hold the page image."""
    next_position: int
    """The rotary position at which the query suffix starts."""
    grid: tuple[int, int]
    """Rows and columns of the page's visual positions before any was dropped."""
    key_minima: NDArray[np.uint16] | None = None
    value_minima: NDArray[np.uint16] | None = None
    """Packed: of the shapes of the scales."""
    numbers: NumberFormat = PAPER_NUMBERS
    shared: SharedPrefix | None = None
    """The positions before these, held once for many pages."""

    @property
    def shared_count(self) -> int:
        """How many positions stand before these."""
        return 0 if self.shared is None else self.shared.count

    @property
    def cells(self) -> NDArray[np.int64]:
        """Which cells of the grid, in raster order, the kept visual positions are.

        Every position that is not visual is kept, so a position less the number of those before it
        is its cell.
        """
        not_visual = np.cumsum(~self.visual) + self.shared_count
        return (self.positions.astype(np.int64) - not_visual)[self.visual]

    @property
    def total(self) -> int:
        """Positions of the whole prefix: every position that is not visual is kept."""
        return self.shared_count + int((~self.visual).sum()) + self.grid[0] * self.grid[1]


def block_shape(prefix: PackedPrefix) -> BlockShape:
    """The shape of the block that holds `prefix`; arrays of other shapes or types are refused."""
    if prefix.keys.ndim != 4:
        raise StoreError(
            f"keys have shape {prefix.keys.shape}, wanted (layers, kv_heads, positions, head_dim)"
        )
    layers, kv_heads, _, head_dim = prefix.keys.shape
    shape = BlockShape(
        layers, kv_heads, len(prefix.positions), head_dim, prefix.next_position, prefix.grid, prefix.numbers
    )
    if shape.format == 2:
        shape = replace(shape, shared=prefix.shared_count, total=prefix.total)
    for name, span in array_spans(shape).items():
        if name in _BITMAPS:
            continue
        array: NDArray[Any] = getattr(prefix, name)
        if (array.shape, array.dtype) != (span.shape, span.dtype):
            raise StoreError(f"{name} are {array.dtype} {array.shape}, wanted {span.dtype} {span.shape}")
    return shape


def pack(prefix: PackedPrefix, *, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
    """Write the prefix as one block of bytes, into `out` where given; equal prefixes give equal bytes."""
    shape = block_shape(prefix)
    out = np.empty(shape.nbytes, dtype=np.uint8) if out is None else out
    out[:] = 0
    numbers = (0, 0, 0) if shape.format == 1 else _number_codes(shape.numbers)
    _HEADER.pack_into(
        out.data, 0, _MAGIC, shape.format, SCALE.itemsize, shape.layers, shape.kv_heads, shape.positions,
        shape.head_dim, shape.next_position, *shape.grid, *numbers, shape.nbytes, shape.shared, shape.total,
    )  # fmt: skip
    for name, view in _views(shape, out):
        view[...] = _bitmap(prefix, name) if name in _BITMAPS else getattr(prefix, name)
    return out


def read_header(buffer: Bytes) -> BlockShape:
    """Read the shape of the block that starts with these bytes; `HEADER_BYTES` of them are enough."""
    if _view(buffer).nbytes < HEADER_BYTES:
        raise StoreError(f"a prefix of {_view(buffer).nbytes} bytes, wanted at least {HEADER_BYTES}")
    return _parse_header(bytes(_view(buffer)[:HEADER_BYTES]))


@lru_cache(maxsize=1024)
def _parse_header(header: bytes) -> BlockShape:
    """Most pages of a store have one of a few headers, and a request reads those of all its candidates."""
    magic, stored_format, scale_bytes, *sizes = _HEADER.unpack(header)
    if magic != _MAGIC:
        raise StoreError(f"a prefix that starts with {magic!r}, wanted {_MAGIC!r}: the store is damaged")
    if stored_format not in FORMATS:
        raise ArtifactError(f"a prefix of format {stored_format}, wanted 1 or 2: index the pages again")
    if scale_bytes != SCALE.itemsize:
        raise StoreError(f"a prefix with scales of {scale_bytes} bytes, wanted 2: the store is damaged")
    layers, kv_heads, positions, head_dim, next_position, rows, columns, *codes, nbytes, shared, total = sizes
    numbers = PAPER_NUMBERS if stored_format == 1 else _read_numbers(*codes)
    shape = BlockShape(
        layers, kv_heads, positions, head_dim, next_position, (rows, columns), numbers, shared, total
    )
    if (shape.nbytes, shape.format) != (nbytes, stored_format):
        raise StoreError(f"a prefix of {nbytes} bytes whose shape needs {shape.nbytes}: the store is damaged")
    return shape


def unpack(buffer: Bytes, *, shared: SharedPrefix | None = None) -> PackedPrefix:
    """The prefix in a block, as views on `buffer`: no codes are copied.

    `shared` are the store's positions before the page, where its blocks leave them out.
    """
    shape = read_header(buffer)
    if _view(buffer).nbytes < shape.nbytes:
        raise StoreError(f"a prefix of {shape.nbytes} bytes in {_view(buffer).nbytes}: the store is damaged")
    arrays = dict(_views(shape, buffer))
    if shape.format == 2:
        arrays |= _read_bitmaps(shape, arrays)
        held = 0 if shared is None else shared.count
        if held != shape.shared:
            raise StoreError(
                f"a prefix without the {shape.shared} positions before its page, of which the store holds "
                f"{held}: the store is damaged"
            )
    return PackedPrefix(
        **{name: array for name, array in arrays.items() if name not in _BITMAPS},
        next_position=shape.next_position,
        grid=shape.grid,
        numbers=shape.numbers,
        shared=shared if shape.shared else None,
    )


_BITMAPS = ("kept_bits", "visual_bits")
"""Arrays of a block of format 2: one bit for each position of the whole prefix, the lowest bit first."""


def _bitmap(prefix: PackedPrefix, name: str) -> NDArray[np.uint8]:
    bits = np.zeros(prefix.total, dtype=np.bool_)
    bits[prefix.positions if name == "kept_bits" else prefix.positions[prefix.visual]] = True
    return np.packbits(bits, bitorder="little")


def _read_bitmaps(shape: BlockShape, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    kept, visual = (
        np.unpackbits(arrays[name], count=shape.total, bitorder="little").view(np.bool_) for name in _BITMAPS
    )
    positions = np.flatnonzero(kept).astype(np.int32)
    if len(positions) != shape.positions:
        raise StoreError(
            f"a prefix that marks {len(positions)} positions and holds {shape.positions}: "
            "the store is damaged"
        )
    return {"positions": positions, "visual": visual[positions]}


def _number_codes(numbers: NumberFormat) -> tuple[int, int, int]:
    return numbers.key_bits, numbers.value_bits, numbers.group or 0


def _read_numbers(key_bits: int, value_bits: int, group: int) -> NumberFormat:
    try:
        return NumberFormat(key_bits, value_bits, group or None)
    except StoreError as error:
        raise StoreError(f"a prefix with {error}: the store is damaged") from error


def vectors_checksum(vectors: NDArray[np.float16]) -> bytes:
    """BLAKE2b-128 of a page's retriever vectors."""
    return hashlib.blake2b(np.ascontiguousarray(vectors).data, digest_size=CHECKSUM_BYTES).digest()


def checksum(page_id: str, text: str, thumbnail: bytes, block: Bytes) -> bytes:
    """BLAKE2b-128 of a page's id, text, thumbnail and block, each preceded by its length.

    References are left out: a page may be renamed without touching its bytes. `names_checksum` has them.
    """
    return _digest_parts([page_id.encode(), text.encode(), thumbnail, block])


def names_checksum(page_id: str, references: Sequence[str], source: str) -> bytes:
    """BLAKE2b-128 of a page's id, its source and its references, each preceded by its length."""
    return _digest_parts([name.encode() for name in (page_id, source, *references)])


def _digest_parts(parts: Iterable[Bytes]) -> bytes:
    digest = hashlib.blake2b(digest_size=CHECKSUM_BYTES)
    for part in parts:
        digest.update(_view(part).nbytes.to_bytes(8, "little"))
        digest.update(_view(part))
    return digest.digest()


def _views(shape: BlockShape, buffer: Bytes) -> Iterator[tuple[str, NDArray[Any]]]:
    for name, span in array_spans(shape).items():
        yield name, np.ndarray(span.shape, span.dtype, buffer, span.offset, span.strides)


def _view(buffer: Bytes) -> memoryview:
    return buffer.data if isinstance(buffer, np.ndarray) else memoryview(buffer)
