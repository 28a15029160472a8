"""Every name and byte of the store on disk; `docs/store-format.md` says the same in words.

A page's prefix is one block of bytes, little endian: a header of 64 bytes (`_HEADER`), which positions were
kept, then layer after layer, so that a block read from its start is ready for the model layer by layer.
This module knows nothing of Lance, files or torch, nor what a scale means.
"""

import hashlib
import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ridgerank.backbones.model_settings import SHORT_NAMES
from ridgerank.errors import ArtifactError, BackboneError, StoreError
from ridgerank.lineage import PAPER_NUMBERS, NumberFormat, StorageSetting

HEADER_BYTES = 64
ALIGNMENT = 16
"""Of every array of a block, in bytes."""
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
    """Positions of the whole prefix before any was dropped."""

    @property
    def layers_start(self) -> int:
        """Where layer 0 starts."""
        return HEADER_BYTES + sum(_align(_nbytes(*array)) for array in self.page_arrays().values())

    @property
    def layer_nbytes(self) -> int:
        """Bytes of one layer, padding counted."""
        return sum(_align(_nbytes(*array)) for array in self.layer_arrays().values())

    @property
    def nbytes(self) -> int:
        """Bytes of the whole block."""
        return _block_nbytes(self)

    def layer_start(self, layer: int) -> int:
        """Where a layer starts; where the block ends for a layer past the last."""
        return self.layers_start + min(layer, self.layers) * self.layer_nbytes

    def page_arrays(self) -> dict[str, ArrayType]:
        """The type and shape of each array before the layers, in their order in the block."""
        bitmap = (np.dtype(np.uint8), (-(-self.total // 8),))
        return {"kept_bits": bitmap, "visual_bits": bitmap}

    def layer_arrays(self) -> dict[str, ArrayType]:
        """The type and shape of each array of a layer, in their order in the block."""
        heads, count, dim = self.kv_heads, self.positions, self.head_dim
        if self.numbers.symmetric:
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


def packed_rows(positions: int, bits: int) -> int:
    """Rows of bytes that hold `positions` rows of codes: a byte has the codes of neighbouring positions.

    Three bits are two bits of four positions, then one bit of eight.
    """
    if bits == 3:
        return -(-positions // 4) - (-positions // 8)
    return -(-positions * bits // 8)


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
        offset += _align(_nbytes(dtype, dims))
    for name, (dtype, dims) in shape.layer_arrays().items():
        strides = (shape.layer_nbytes, *_strides(dtype, dims))
        spans[name] = Span(dtype, (shape.layers, *dims), offset, strides)
        offset += _align(_nbytes(dtype, dims))
    return MappingProxyType(spans)


def _strides(dtype: np.dtype[Any], dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(dtype.itemsize * math.prod(dims[axis + 1 :]) for axis in range(len(dims)))


def _nbytes(dtype: np.dtype[Any], dims: tuple[int, ...]) -> int:
    return dtype.itemsize * math.prod(dims)


def _align(nbytes: int) -> int:
    """Where the next array may start, `nbytes` after the start of one."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


FORMAT = 1
"""The number of this format."""

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
"""Columns of the dataset; those of vectors are absent until a retriever fills them."""
COLUMNS = (PAGE_ID, REFERENCES, SOURCE, TEXT, THUMBNAIL, POSITIONS, CHECKSUM, NAMES_CHECKSUM, PREFIX)

LABELS = "labels"
"""A further column, absent until there is metadata: what is said of a page's documents, as `key=value`."""

CALIBRATIONS = "calibrations"
SOURCES = "_sources.json"
"""What may lie beside the dataset in a local directory: fitted readouts, and where documents were found."""

SHARED = "_shared.safetensors"
"""Beside the dataset, unless pages are stored with them: keys and values of the positions before the page."""

SEALS = "_seals.json"
"""Beside a local dataset: digests of the files that say what the store holds (`seal_store`)."""

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
bits of values, group; bytes; shared positions, positions of the whole prefix. A group of 0 is none."""


SharedPositions: TypeAlias = NDArray[np.float32]
"""Keys and values of the positions before the page, which are the same for every page of a store:
(2, layers, kv_heads, positions, head_dim)."""


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
    shared: SharedPositions | None = None
    """The positions before these, held once for many pages."""

    @property
    def shared_count(self) -> int:
        """How many positions stand before these."""
        return 0 if self.shared is None else self.shared.shape[3]

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
            f"keys have shape {prefix.keys.shape}, expected (layers, kv_heads, positions, head_dim)"
        )
    layers, kv_heads, _, head_dim = prefix.keys.shape
    shape = BlockShape(
        layers,
        kv_heads,
        len(prefix.positions),
        head_dim,
        prefix.next_position,
        prefix.grid,
        prefix.numbers,
        prefix.shared_count,
        prefix.total,
    )
    for name, span in array_spans(shape).items():
        if name in _BITMAPS:
            continue
        array: NDArray[Any] = getattr(prefix, name)
        if (array.shape, array.dtype) != (span.shape, span.dtype):
            raise StoreError(f"{name} are {array.dtype} {array.shape}, expected {span.dtype} {span.shape}")
    return shape


def pack(prefix: PackedPrefix, *, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
    """Write the prefix as one block of bytes, into `out` where given; equal prefixes give equal bytes."""
    shape = block_shape(prefix)
    out = np.empty(shape.nbytes, dtype=np.uint8) if out is None else out
    out[:] = 0
    numbers = shape.numbers
    _HEADER.pack_into(
        out.data, 0, _MAGIC, FORMAT, SCALE.itemsize, shape.layers, shape.kv_heads, shape.positions,
        shape.head_dim, shape.next_position, *shape.grid, numbers.key_bits, numbers.value_bits,
        numbers.group or 0, shape.nbytes, shape.shared, shape.total,
    )  # fmt: skip
    for name, view in _views(shape, out):
        view[...] = _bitmap(prefix, name) if name in _BITMAPS else getattr(prefix, name)
    return out


def read_header(buffer: Bytes) -> BlockShape:
    """Read the shape of the block that starts with these bytes; `HEADER_BYTES` of them are enough."""
    if _view(buffer).nbytes < HEADER_BYTES:
        raise StoreError(f"a prefix of {_view(buffer).nbytes} bytes, expected at least {HEADER_BYTES}")
    return _parse_header(bytes(_view(buffer)[:HEADER_BYTES]))


@lru_cache(maxsize=1024)
def _parse_header(header: bytes) -> BlockShape:
    """Most pages of a store have one of a few headers, and a request reads those of all its candidates."""
    magic, stored_format, scale_bytes, *sizes = _HEADER.unpack(header)
    if magic != _MAGIC:
        raise StoreError(f"a prefix that starts with {magic!r}, expected {_MAGIC!r}: the store is damaged")
    if stored_format != FORMAT:
        raise ArtifactError(f"a prefix of format {stored_format}, expected {FORMAT}: index the pages again")
    if scale_bytes != SCALE.itemsize:
        raise StoreError(f"a prefix with scales of {scale_bytes} bytes, expected 2: the store is damaged")
    layers, kv_heads, positions, head_dim, next_position, rows, columns, *codes, nbytes, shared, total = sizes
    shape = BlockShape(
        layers,
        kv_heads,
        positions,
        head_dim,
        next_position,
        (rows, columns),
        _read_numbers(*codes),
        shared,
        total,
    )
    if shape.nbytes != nbytes:
        raise StoreError(f"a prefix of {nbytes} bytes whose shape needs {shape.nbytes}: the store is damaged")
    return shape


def unpack(buffer: Bytes, *, shared: SharedPositions | None = None) -> PackedPrefix:
    """The prefix in a block, as views on `buffer`: no codes are copied.

    `shared` are the store's positions before the page, where its blocks leave them out.
    """
    shape = read_header(buffer)
    if _view(buffer).nbytes < shape.nbytes:
        raise StoreError(f"a prefix of {shape.nbytes} bytes in {_view(buffer).nbytes}: the store is damaged")
    arrays = dict(_views(shape, buffer))
    arrays |= _read_bitmaps(shape, arrays)
    held = 0 if shared is None else shared.shape[3]
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
"""Arrays of a block: one bit for each position of the whole prefix, the lowest bit first."""


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


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model, and what the bytes of its pages depend on."""

    kv_heads: int
    head_dim: int
    page_positions: int
    """Visual positions of a page, or tokens of its text."""
    before_page: int
    """Positions of the prompt before the page: packed numbers keep them once for all pages."""
    after_page: int
    """All others that are stored: the instruction up to the query, and marks within the page."""
    parameters: float
    layers: int
    reads_text: bool = False


_QWEN2_VL, _QWEN3_VL, _GLM = (15, 28), (4, 28), (5, 28)
_MONOQWEN, _JINA = (15, 22), (5, 5)
_QWEN_TEXT, _SMOLLM = (14, 28), (14, 31)
_SMOLVLM, _IDEFICS3 = (3, 68), (3, 181)
"""Positions before the page and the others, by the prompts of `backbones` under the published tokenizers.

SmolVLM has a mark for each of its tiles, which Idefics3 spells: its tokenizer was not at hand, and Qwen's,
whose words are nearly the same, was counted with.
"""

MODEL_SHAPES = {
    "qwen2.5-vl-7b": ModelShape(4, 128, 1280, *_QWEN2_VL, 8.3e9, 28),
    "qwen2.5-vl-3b": ModelShape(2, 128, 1280, *_QWEN2_VL, 3.8e9, 36),
    "glm-4.1v-9b": ModelShape(2, 128, 1280, *_GLM, 10.3e9, 40),
    "glm-4.6v-flash": ModelShape(2, 128, 1280, *_GLM, 10.3e9, 40),
    "qwen2-vl-2b": ModelShape(2, 128, 1280, *_QWEN2_VL, 2.2e9, 28),
    "monoqwen2-vl": ModelShape(2, 128, 2048, *_MONOQWEN, 2.2e9, 28),
    "jina-reranker-m0": ModelShape(2, 128, 768, *_JINA, 2.2e9, 28),
    "qwen3-vl-2b": ModelShape(8, 128, 1280, *_QWEN3_VL, 2.1e9, 28),
    "qwen3-vl-4b": ModelShape(8, 128, 1280, *_QWEN3_VL, 4.4e9, 36),
    "qwen3-vl-8b": ModelShape(8, 128, 1280, *_QWEN3_VL, 8.8e9, 36),
    # A letter page: 4 x 4 tiles and the whole page, of 169, 64 and 81 positions each.
    "idefics3-8b": ModelShape(8, 128, 17 * 169, *_IDEFICS3, 8.5e9, 32),
    "smolvlm-256m": ModelShape(3, 64, 17 * 64, *_SMOLVLM, 0.26e9, 30),
    "smolvlm-500m": ModelShape(5, 64, 17 * 64, *_SMOLVLM, 0.51e9, 32),
    "smolvlm-2b": ModelShape(32, 64, 17 * 81, *_SMOLVLM, 2.2e9, 24),
    "smollm2-135m": ModelShape(3, 64, 512, *_SMOLLM, 0.135e9, 30, reads_text=True),
    "smollm2-360m": ModelShape(5, 64, 512, *_SMOLLM, 0.362e9, 32, reads_text=True),
    "qwen2.5-0.5b": ModelShape(2, 64, 512, *_QWEN_TEXT, 0.494e9, 24, reads_text=True),
}
"""Models whose pages can be counted without loading them, by short name."""


def find_shape(name: str) -> ModelShape:
    """The shape of a model that is known, by the end of its name: `Qwen/Qwen2.5-VL-7B-Instruct` will do."""
    plain = name.lower().rpartition("/")[2]
    for known, shape in MODEL_SHAPES.items():
        if plain.startswith(known) or name == SHORT_NAMES.get(known):
            return shape
    raise BackboneError(f"no known shape of {name!r}; known: {', '.join(MODEL_SHAPES)}")


def count_page_bytes(shape: ModelShape, setting: StorageSetting) -> int:
    """Bytes of a page's prefix; of the paper's numbers, the positions before the page are among them."""
    shared = 0 if setting.numbers.symmetric else shape.before_page
    around = shape.before_page + shape.after_page
    return BlockShape(
        setting.exit_layer,
        shape.kv_heads,
        setting.keep.count(shape.page_positions) + around - shared,
        shape.head_dim,
        0,
        (1, shape.page_positions),
        setting.numbers,
        shared,
        shape.page_positions + around,
    ).nbytes
