"""Every name and byte of the store on disk; `docs/store-format.md` says the same in words.

A page's prefix is one block of bytes, little endian. Pages of the preset `paper` are int8 codes with their
scales. All others are coefficients in the store's basis, as int8 codes compressed by zstd; `codec.py` says
what a basis means and how one is fitted. This module knows nothing of Lance, files or torch.
"""

import hashlib
import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import xxhash
import zstandard
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ridgerank.backbones.model_settings import SHORT_NAMES
from ridgerank.errors import ArtifactError, BackboneError, StoreError
from ridgerank.lineage import StorageSetting

FORMAT = 1

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
PREFIX_BYTES = "prefix_bytes"
PREFIX_CHECKSUM = "prefix_checksum"
PREFIX = "prefix"
VECTORS = "vectors"
VECTORS_CHECKSUM = "vectors_checksum"
"""Columns of the dataset; those of vectors are absent until a retriever fills them."""
COLUMNS = (
    *(PAGE_ID, REFERENCES, SOURCE, TEXT, THUMBNAIL, CHECKSUM),
    *(POSITIONS, PREFIX_BYTES, PREFIX_CHECKSUM, PREFIX),
)

LABELS = "labels"
"""A further column, absent until there is metadata: what is said of a page's documents, as `key=value`."""

FOLDERS = CALIBRATIONS, JUDGEMENTS, EMBEDDINGS = "calibrations", "judgements", "embeddings"
"""Folders beside the dataset: fitted readouts; what people said of pages in the browser; the pages' text
embeddings, which may be removed at any time."""
FILES = SOURCES, BASIS, PROBE = "_sources.json", "_basis.safetensors", "_probe.safetensors"
"""Files beside the dataset: where documents were found; the basis of pages that are not int8; what the model
that made the store said of a few pages."""

LANCE_FILE_VERSION = "2.1"
"""What data files are written in, whatever the release of Lance; readers leave the version to Lance."""

CHECKSUM_BYTES = 16

Bytes: TypeAlias = bytes | bytearray | memoryview | NDArray[np.uint8]
ArrayType: TypeAlias = tuple[str, tuple[int, ...]]

_MAGIC = b"RRPREFIX"
_HEADER = struct.Struct("<8s12IfI")
"""Magic; format, kind, layers, kv_heads, positions, head_dim, next_position, rows, columns, shared positions,
positions of the whole prefix, positions stored whole; share that is cut; bytes of the decoded body."""
_INT8, _CODED = 0, 1
ZSTD_LEVEL = 9
"""Higher levels take longer to write and save little; reading is as fast at all of them."""


@dataclass(frozen=True, slots=True, eq=False)
class LayerGroup:
    """The transform of the keys, or of the values, of some neighbouring layers."""

    mean: NDArray[np.float32]
    """(channels,): layers, key-value heads and channels of a head, one after the other."""
    rows: NDArray[np.float16]
    """(rank, channels): orthonormal, by falling variance; those whose codes are always zero are cut."""
    steps: NDArray[np.float32]
    """(rank,): what one code is worth."""
    tail_steps: NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Basis:
    """What turns pages into coefficients and back, and keys by a `Rotation`, the same for a whole store."""

    shared: NDArray[np.float32]
    """(2, layers, kv_heads, positions, head_dim): keys, turned, and values before the page, held once."""
    tail: NDArray[np.float32]
    """(2, layers, kv_heads, positions, head_dim): keys, not turned, and values after the page, on average."""
    frequencies: NDArray[np.float64]
    interleaved: bool
    scaling: float
    layers_per_group: int
    keys: tuple[LayerGroup, ...]
    """Of keys before they are turned by their position."""
    values: tuple[LayerGroup, ...]
    limits: tuple[float, float]
    """Squared distance of keys and of values from the mean beyond which a position is stored whole."""
    lost: float
    """The largest share of a sampled page's squares that is cut."""

    @property
    def groups(self) -> tuple[LayerGroup, ...]:
        """Keys and values of the first layers, then of the next."""
        return tuple(group for pair in zip(self.keys, self.values, strict=True) for group in pair)

    @property
    def rank(self) -> int:
        """Codes of one position."""
        return sum(len(group.rows) for group in self.groups)

    def to_bytes(self) -> bytes:
        """A safetensors file."""
        arrays = {name: getattr(self, name) for name in _BASIS_ARRAYS}
        for kind in ("keys", "values"):
            for number, group in enumerate(getattr(self, kind)):
                arrays |= {f"{kind}.{number}.{name}": getattr(group, name) for name in _GROUP_ARRAYS}
        facts = {"format": FORMAT, **{name: getattr(self, name) for name in _BASIS_FACTS}}
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        return save(contiguous, metadata={"facts": json.dumps(facts)})

    @classmethod
    def from_bytes(cls, content: bytes) -> "Basis":
        """Read what `to_bytes` wrote."""
        try:
            arrays = load(content)
            length = int.from_bytes(content[:8], "little")
            facts = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["facts"])
            if facts.pop("format") != FORMAT:
                raise ValueError("another format")
            count = sum(name.startswith("keys.") for name in arrays) // len(_GROUP_ARRAYS)
            keys, values = (
                tuple(
                    LayerGroup(*(arrays[f"{kind}.{number}.{name}"] for name in _GROUP_ARRAYS))
                    for number in range(count)
                )
                for kind in ("keys", "values")
            )
            facts["limits"] = tuple(facts["limits"])
            parts: dict[str, Any] = {name: arrays[name] for name in _BASIS_ARRAYS}
            return cls(**parts, keys=keys, values=values, **facts)
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"a basis that cannot be read ({error}): restore it from a copy") from error


_BASIS_ARRAYS = ("shared", "tail", "frequencies")
_BASIS_FACTS = ("interleaved", "scaling", "layers_per_group", "limits", "lost")
_GROUP_ARRAYS = ("mean", "rows", "steps", "tail_steps")


def digest_basis(content: bytes) -> str:
    """The digest of a basis as a file, as a lineage records it: 128 bits, in hex."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class PackedPrefix:
    """One page's prefix as it is stored, and as it is held in memory."""

    arrays: Mapping[str, NDArray[Any]]
    """int8: `keys`, `values` (layers, kv_heads, positions, head_dim) with `key_scales` (layers, kv_heads,
    head_dim) and `value_scales` (layers, kv_heads, positions), the bits of bfloat16. Coded: `codes` (rank,
    positions) and `tail_codes` (rank, positions after the page), `rotary` (axes, positions), `whole` (whole
    positions,), `whole_vectors` (2, layers, kv_heads, whole positions, head_dim), keys not turned yet."""
    shape: tuple[int, int, int]
    """Layers, key-value heads, channels of a head."""
    positions: NDArray[np.int32]
    """(positions,): which positions of the whole prefix were kept, increasing; shared ones left out."""
    visual: NDArray[np.bool_]
    """(positions,): which of the kept positions hold the page."""
    next_position: int
    grid: tuple[int, int]
    basis: Basis | None = None
    lost: float = 0.0

    @property
    def shared_count(self) -> int:
        """How many positions stand before these."""
        return 0 if self.basis is None else self.basis.shared.shape[3]

    @property
    def cells(self) -> NDArray[np.int64]:
        """Cells of the grid, in raster order, that the kept visual positions are."""
        not_visual = np.cumsum(~self.visual) + self.shared_count  # they are all kept
        return (self.positions.astype(np.int64) - not_visual)[self.visual]

    @property
    def total(self) -> int:
        """Positions of the whole prefix: every position that is not visual is kept."""
        return self.shared_count + int((~self.visual).sum()) + self.grid[0] * self.grid[1]

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(array.nbytes for array in self.arrays.values())


def _array_types(
    kind: int, shape: tuple[int, int, int], positions: int, total: int, whole: int, basis: Basis | None
) -> dict[str, ArrayType]:
    """The arrays of a block's body in order, those of wider numbers first."""
    layers, heads, dim = shape
    bitmaps = dict.fromkeys(("kept_bits", "visual_bits"), ("u1", (-(-total // 8),)))
    if kind == _INT8:
        codes = ("i1", (layers, heads, positions, dim))
        scales = {"key_scales": ("<u2", (layers, heads, dim)), "value_scales": ("<u2", codes[1][:3])}
        return {**scales, "keys": codes, "values": codes, **bitmaps}
    if basis is None:
        raise ValueError(f"kind {kind}, without a basis")
    return {
        "rotary": ("<i4", (len(basis.frequencies), positions)),
        "whole": ("<i4", (whole,)),
        "whole_vectors": ("<f2", (2, layers, heads, whole, dim)),
        "codes": ("i1", (basis.rank, positions - basis.tail.shape[3])),
        "tail_codes": ("i1", (basis.rank, basis.tail.shape[3])),
        **bitmaps,
    }


def pack(prefix: PackedPrefix) -> NDArray[np.uint8]:
    """Write the prefix as one block of bytes; equal prefixes give equal bytes."""
    kind = _INT8 if prefix.basis is None else _CODED
    count, whole = len(prefix.positions), len(prefix.arrays.get("whole", ()))
    types = _array_types(kind, prefix.shape, count, prefix.total, whole, prefix.basis)
    arrays = {name: np.asarray(array) for name, array in prefix.arrays.items()}
    for name in types:
        if name.endswith("_bits"):
            bits = np.zeros(prefix.total, dtype=np.bool_)
            bits[prefix.positions if name == "kept_bits" else prefix.positions[prefix.visual]] = True
            arrays[name] = np.packbits(bits, bitorder="little")
    if kind == _CODED:
        arrays["rotary"] = np.diff(arrays["rotary"], axis=1, prepend=np.int32(0))
    body = b"".join(np.ascontiguousarray(arrays[name]).tobytes() for name in types)
    layers, heads, dim = prefix.shape
    header = _HEADER.pack(
        _MAGIC, FORMAT, kind, layers, heads, count, dim, prefix.next_position, *prefix.grid,
        prefix.shared_count, prefix.total, whole, prefix.lost, len(body),
    )  # fmt: skip
    if kind == _CODED:
        body = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(body)
    return np.frombuffer(header + body, dtype=np.uint8)


def unpack(block: Bytes, *, basis: Basis | None = None) -> PackedPrefix:
    """The prefix in a block whose checksum was compared; arrays are views on memory of their own."""
    view = block.data if isinstance(block, np.ndarray) else memoryview(block)
    try:
        return _parse(bytes(view[: _HEADER.size]), view[_HEADER.size :], basis)
    except (struct.error, ValueError, OverflowError, MemoryError, zstandard.ZstdError) as error:
        raise StoreError(f"a prefix that cannot be read ({error}): the store is damaged") from error


def _parse(header: bytes, body: memoryview, basis: Basis | None) -> PackedPrefix:
    magic, stored_format, kind, *sizes, lost, nbytes = _HEADER.unpack(header)
    layers, heads, count, dim, next_position, rows, columns, shared, total, whole = sizes
    if magic != _MAGIC:
        raise ValueError(f"it starts with {magic!r}, expected {_MAGIC!r}")
    if stored_format != FORMAT:
        raise ArtifactError(f"a prefix of format {stored_format}, expected {FORMAT}: index the pages again")
    of_page = basis if kind == _CODED else None
    if shared != (0 if of_page is None else of_page.shared.shape[3]):
        raise ValueError(f"it follows {shared} positions that the store does not hold")
    types = _array_types(kind, (layers, heads, dim), count, total, whole, of_page)
    decoded = np.frombuffer(
        bytearray(zstandard.ZstdDecompressor().decompress(body) if kind == _CODED else body), dtype=np.uint8
    )
    arrays, start = {}, 0
    for name, (dtype, dims) in types.items():
        length = math.prod(dims) * np.dtype(dtype).itemsize
        arrays[name] = decoded[start : start + length].view(dtype).reshape(dims)
        start += length
    kept, visual = (
        np.unpackbits(arrays.pop(name), count=total, bitorder="little").view(np.bool_)
        for name in ("kept_bits", "visual_bits")
    )
    positions = np.flatnonzero(kept).astype(np.int32)
    if not start == nbytes == decoded.nbytes or len(positions) != count:
        raise ValueError(f"{decoded.nbytes} bytes and {len(positions)} positions, not {nbytes} and {count}")
    if kind == _CODED:
        arrays["rotary"] = np.cumsum(arrays["rotary"], axis=1, dtype=np.int32)
    facts = (positions, visual[positions], next_position, (rows, columns))
    return PackedPrefix(arrays, (layers, heads, dim), *facts, of_page, lost)


def vectors_checksum(vectors: NDArray[np.float16]) -> bytes:
    """XXH3-128 of a page's retriever vectors."""
    return xxhash.xxh3_128_digest(np.ascontiguousarray(vectors).data)


def block_checksum(block: Bytes) -> int:
    """XXH3-64 of a prefix block, compared whenever the block is read."""
    return xxhash.xxh3_64_intdigest(block.data if isinstance(block, np.ndarray) else block)


def checksum(page_id: str, references: Sequence[str], source: str, text: str, thumbnail: bytes) -> bytes:
    """XXH3-128 of all that a row says of a page but its block and vectors, each part behind its length."""
    digest = xxhash.xxh3_128()
    for part in (*(name.encode() for name in (page_id, source, text, *references)), thumbnail):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model, and what the bytes of its pages depend on."""

    kv_heads: int
    head_dim: int
    page_positions: int
    """Visual positions of a page, or tokens of its text."""
    before_page: int
    """Positions of the prompt before the page: a basis keeps them once for all pages."""
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


MEASURED_BITS = {True: 1.4, False: 0.75}
"""Bits of a number of a page in the preset `small`, as measured (results/compression.json): text, images."""


def count_page_bytes(shape: ModelShape, setting: StorageSetting) -> int:
    """Bytes of a page's prefix: exact for int8, else arithmetic with the bits of a measured model."""
    kept, around = setting.keep.count(shape.page_positions), shape.before_page + shape.after_page
    numbers = 2 * setting.exit_layer * shape.kv_heads
    if setting.quality is None:
        positions = kept + around
        scales = numbers * (shape.head_dim + positions)
        bitmaps = 2 * -(-(shape.page_positions + around) // 8)
        return _HEADER.size + bitmaps + numbers * positions * shape.head_dim + scales
    positions = kept + shape.after_page
    return round(numbers * positions * shape.head_dim * MEASURED_BITS[shape.reads_text] / 8)
