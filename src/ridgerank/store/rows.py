"""A page as a row of the store: the records readers and writers exchange, and their Arrow columns.

The prompt before the page is the same for every page, and a causal model reads it before the page: its keys
and values do not depend on the page. They are kept once beside a store, in float32: the first positions draw
the most attention.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ridgerank.atomic import replace_file
from ridgerank.errors import StoreError
from ridgerank.store import lance_dataset, layout
from ridgerank.store.lance_dataset import RemoteFolder
from ridgerank.store.layout import PackedPrefix, SharedPrefix


@dataclass(frozen=True, slots=True, eq=False)
class StoredPage:
    """A stored page without its prefix."""

    page_id: str
    references: tuple[str, ...]
    """Every name of this content: `report.pdf#3`, and `copy.pdf#3` where the same page occurs twice."""
    source: str
    """Name of the file the page came from."""
    text: str
    thumbnail: bytes
    """A small encoded image, empty where there is none."""
    vectors: NDArray[np.float16] | None = None
    """(vectors, dim): the retriever's vectors, None until they are stored."""


@dataclass(frozen=True, slots=True, eq=False)
class PageRow:
    """A page to store."""

    page: StoredPage
    prefix: PackedPrefix


def build_table(rows: Sequence[PageRow], schema: pa.Schema) -> pa.Table:
    """A table of rows, with their prefixes packed and their checksums."""
    pages = [row.page for row in rows]
    blocks, blobs = pack_blobs([row.prefix for row in rows])
    columns: dict[str, Any] = {
        layout.PAGE_ID: [page.page_id for page in pages],
        layout.REFERENCES: [list(page.references) for page in pages],
        layout.SOURCE: [page.source for page in pages],
        layout.TEXT: [page.text for page in pages],
        layout.THUMBNAIL: [page.thumbnail for page in pages],
        layout.POSITIONS: [len(row.prefix.positions) for row in rows],
        layout.CHECKSUM: [
            layout.checksum(page.page_id, page.text, page.thumbnail, block)
            for page, block in zip(pages, blocks, strict=True)
        ],
        layout.NAMES_CHECKSUM: [
            layout.names_checksum(page.page_id, page.references, page.source) for page in pages
        ],
        layout.PREFIX: blobs,
    }
    if layout.LABELS in schema.names:
        columns[layout.LABELS] = [None] * len(pages)
    if layout.VECTORS in schema.names:
        columns |= build_vector_columns([page.vectors for page in pages], vector_dim(schema))
    elif any(page.vectors is not None for page in pages):
        raise StoreError("pages with retriever vectors, but the store has no column for them; fill it first")
    return pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def parse_pages(table: pa.Table) -> list[StoredPage]:
    """Read the pages of a table that holds at least the columns of a `StoredPage`, vectors optional."""
    vectors: list[NDArray[np.float16] | None] = [None] * table.num_rows
    if layout.VECTORS in table.column_names:
        vectors = read_vectors(table)
    return [
        StoredPage(
            page_id=row[layout.PAGE_ID],
            references=tuple(row[layout.REFERENCES]),
            source=row[layout.SOURCE],
            text=row[layout.TEXT],
            thumbnail=row[layout.THUMBNAIL],
            vectors=page_vectors,
        )
        for row, page_vectors in zip(table.select(PAGE_COLUMNS).to_pylist(), vectors, strict=True)
    ]


PAGE_COLUMNS = [layout.PAGE_ID, layout.REFERENCES, layout.SOURCE, layout.TEXT, layout.THUMBNAIL]
"""The columns of a `StoredPage`, vectors apart."""


def pack_blobs(prefixes: Sequence[PackedPrefix]) -> tuple[list[NDArray[np.uint8]], pa.Array]:
    """Pack prefixes into one buffer; return the blocks, and a binary array on the same bytes."""
    ends = np.cumsum([0, *(layout.block_shape(prefix).nbytes for prefix in prefixes)], dtype=np.int64)
    data = np.empty(ends[-1], dtype=np.uint8)
    blocks = [
        layout.pack(prefix, out=data[start:end])
        for prefix, (start, end) in zip(prefixes, pairwise(ends), strict=True)
    ]
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    return blocks, pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(blocks), buffers)


def build_vector_columns(vectors: Sequence[NDArray[np.float16] | None], dim: int) -> dict[str, pa.Array]:
    """Put multi-vectors and their checksums into columns, None as null."""
    for page_vectors in vectors:
        if page_vectors is not None and (
            page_vectors.ndim != 2 or page_vectors.shape[1] != dim or page_vectors.dtype != np.float16
        ):
            raise StoreError(
                f"vectors are {page_vectors.dtype} {page_vectors.shape}, wanted float16 (vectors, {dim})"
            )
    empty = np.empty((0, dim), dtype=np.float16)
    filled = [empty if page_vectors is None else page_vectors for page_vectors in vectors]
    cells = pa.FixedSizeListArray.from_arrays(pa.array(np.concatenate([empty, *filled]).ravel()), dim)
    offsets = pa.array(np.cumsum([0, *map(len, filled)], dtype=np.int32))
    is_null = pa.array([page_vectors is None for page_vectors in vectors], pa.bool_())
    checksums = [
        None if page_vectors is None else layout.vectors_checksum(page_vectors) for page_vectors in vectors
    ]
    return {
        layout.VECTORS: pa.ListArray.from_arrays(offsets, cells, mask=is_null),
        layout.VECTORS_CHECKSUM: pa.array(checksums, pa.binary(layout.CHECKSUM_BYTES)),
    }


def read_vectors(table: Any) -> list[NDArray[np.float16] | None]:  # noqa: ANN401 (a table or a batch)
    """Read the multi-vectors of each row, None where there are none."""
    dim = vector_dim(table.schema)
    return [
        np.asarray(cell.values.flatten(), dtype=np.float16).reshape(-1, dim) if cell.is_valid else None
        for cell in table.column(layout.VECTORS)
    ]


def vector_fields(dim: int) -> list[pa.Field]:
    """Define the columns that come with a retriever's vectors."""
    return [
        pa.field(layout.VECTORS, pa.list_(pa.list_(pa.float16(), dim))),
        pa.field(layout.VECTORS_CHECKSUM, pa.binary(layout.CHECKSUM_BYTES)),
    ]


def vector_dim(schema: pa.Schema) -> int:
    """The length of one retriever vector in a schema that has them."""
    return int(schema.field(layout.VECTORS).type.value_type.list_size)


def write_shared(uri: str, shared: SharedPrefix) -> str:
    """Write them beside a store, before its dataset is made; return the digest that the dataset records."""
    content = save({"keys": shared.keys, "values": shared.values})
    root = lance_dataset.local_root(uri)
    if root is not None:
        with replace_file(root / layout.SHARED) as scratch:
            scratch.write_bytes(content)
    else:
        with TemporaryDirectory(prefix="ridgerank-") as folder:
            path = Path(folder) / layout.SHARED
            path.write_bytes(content)
            RemoteFolder(uri).put(path)
    return _digest(content)


def read_shared(uri: str, digest: str) -> SharedPrefix:
    """Read them back; a file that is missing or has another digest is refused."""
    content = _read(uri)
    if content is None or _digest(content) != digest:
        state = "missing" if content is None else "damaged"
        raise StoreError(
            f"{layout.SHARED} of the page store at {uri} is {state}: without it no page can be read; "
            "restore it from a copy, or index the documents into a new store"
        )
    try:
        tensors = load(content)
    except SafetensorError as error:
        raise StoreError(f"{layout.SHARED} of the page store at {uri} cannot be read: {error}") from error
    # Copies: memory of `bytes` is read-only, which torch warns of.
    return SharedPrefix(tensors["keys"].copy(), tensors["values"].copy())


def _read(uri: str) -> bytes | None:
    root = lance_dataset.local_root(uri)
    if root is not None:
        path = root / layout.SHARED
        return path.read_bytes() if path.is_file() else None
    with TemporaryDirectory(prefix="ridgerank-") as folder:
        if not RemoteFolder(uri).get(layout.SHARED, Path(folder)):
            return None
        return (Path(folder) / layout.SHARED).read_bytes()


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=32).hexdigest()
