"""A retriever's vectors in a store, any number per page, of unit length: their origin, writing, reading."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ridgerank.errors import ArtifactError, LineageMismatch
from ridgerank.lineage import list_differences, to_json_line
from ridgerank.store import lance_dataset, layout

if TYPE_CHECKING:
    from PIL.Image import Image

    from ridgerank.store.page_store import Catalog

_PAGES_PER_BLOCK = 64
_READ_AHEAD_BYTES = 64 << 20
"""What Lance may read ahead of a scan; its default is two gigabytes."""
_PROBES = 32
"""Cells of the index that are searched first, for each vector of a query."""


@dataclass(frozen=True, slots=True)
class VectorOrigin:
    """Which retriever made the vectors of a store, and how."""

    source: str
    """The name or folder the retriever was loaded from, to load it again. Not compared: the weights are."""
    fingerprint: str
    dim: int

    def to_json(self) -> str:
        """One line of JSON, keys sorted."""
        return to_json_line(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError, RecursionError) as error:
            raise ArtifactError(
                f"vectors described as {text!r} ({error}): written by another version of ridgerank; "
                "index the pages again"
            ) from error

    def require(self, expected: "VectorOrigin", *, artifact: str) -> None:
        """Refuse vectors of another retriever, showing both values of what differs."""
        if shown := "; ".join(list_differences(asdict(self), asdict(expected), ignored=("source",))):
            raise LineageMismatch(
                f"{artifact} holds vectors of the retriever {self.source!r}, not of {expected.source!r} "
                f"({shown}); use that retriever, or index into another store"
            )


class PageEmbedder(Protocol):
    """A model that turns page images into vectors that a store can hold."""

    @property
    def origin(self) -> VectorOrigin:
        """Which model it is, as the store records it."""

    def embed_pages(self, images: Sequence["Image"]) -> list[NDArray[np.float16]]:
        """Vectors (vectors, dim) of each page, of unit length."""


@dataclass(frozen=True, slots=True, eq=False)
class VectorBlock:
    """The vectors of some pages, one page after the other."""

    page_ids: list[str]
    vectors: NDArray[np.float16]
    lengths: NDArray[np.int64]
    """(pages,) how many vectors each page has."""


class VectorColumn:
    """The vectors of one version of a store."""

    def __init__(self, dataset: Any, uri: str, origin: VectorOrigin, catalog: "Catalog") -> None:  # noqa: ANN401
        self.origin = origin
        self._dataset = dataset
        self._uri = uri
        self._catalog = catalog

    def missing(self) -> list[str]:
        """The pages that have no vectors."""
        with lance_dataset.wrap_errors(f"reading the page store at {self._uri}"):
            return pages_without_vectors(self._dataset)

    def blocks(self) -> Iterator[VectorBlock]:
        """Read the vectors of all pages, some pages at a time, in the order stored."""
        with lance_dataset.wrap_errors(f"reading vectors from the page store at {self._uri}"):
            scanner = self._dataset.scanner(
                columns=[layout.PAGE_ID, layout.VECTORS],
                batch_size=_PAGES_PER_BLOCK,
                batch_readahead=2,
                fragment_readahead=1,
                io_buffer_size=_READ_AHEAD_BYTES,
                scan_in_order=True,
            )
            for batch in scanner.to_batches():
                yield _read_block(batch)

    def take(self, page_ids: Sequence[str]) -> VectorBlock:
        """Read the vectors of pages, in the order of `page_ids`."""
        table = self._catalog.table(page_ids, [layout.PAGE_ID, layout.VECTORS])
        return _read_block(table.combine_chunks().to_batches()[0])

    @cached_property
    def indexed(self) -> bool:
        """Whether there is an index over the vectors, so that `nearest` need not read all of them."""
        return has_vector_index(self._dataset)

    def nearest(self, query: NDArray[np.float32], k: int, *, condition: str | None = None) -> list[str]:
        """The `k` pages nearest to (tokens, dim) by the index, best first, of those the condition allows."""
        probes = {"minimum_nprobes" if condition else "nprobes": _PROBES}
        with lance_dataset.wrap_errors(f"searching the vectors of the page store at {self._uri}"):
            table = self._dataset.scanner(
                columns=[layout.PAGE_ID],
                nearest={"column": layout.VECTORS, "q": query, "k": k, **probes},
                filter=condition,
                prefilter=condition is not None,
                disable_scoring_autoprojection=True,
            ).to_table()
            page_ids: list[str] = table.column(layout.PAGE_ID).to_pylist()
            return page_ids


def find_vector_origin(uri: str) -> VectorOrigin | None:
    """The retriever whose vectors the store at `uri` holds, None if it holds none or there is no store."""
    dataset = lance_dataset.open_dataset(uri)
    return None if dataset is None else read_vector_origin(dataset)


def read_vector_origin(dataset: Any) -> VectorOrigin | None:  # noqa: ANN401 (Lance is untyped)
    """The retriever that a dataset has vector columns for, None if it has none."""
    text = (dataset.schema.metadata or {}).get(layout.RETRIEVER_KEY.encode())
    if text is None or layout.VECTORS not in dataset.schema.names:
        return None
    return VectorOrigin.from_json(text.decode(errors="replace"))


def pages_without_vectors(dataset: Any) -> list[str]:  # noqa: ANN401
    """The pages of a dataset with vector columns that have no vectors there."""
    # A page has a checksum exactly if it has vectors, and the checksums are ten thousand times smaller.
    table = dataset.to_table(columns=[layout.PAGE_ID], filter=f"{layout.VECTORS_CHECKSUM} IS NULL")
    page_ids: list[str] = table.column(layout.PAGE_ID).to_pylist()
    return page_ids


def has_vector_index(dataset: Any) -> bool:  # noqa: ANN401
    """Whether a dataset's vectors are indexed."""
    return any(layout.VECTORS in index.field_names for index in dataset.describe_indices())


def build_vector_columns(vectors: Sequence[NDArray[np.float16] | None], dim: int) -> dict[str, pa.Array]:
    """Put multi-vectors and their checksums into columns, None as null."""
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
    """Read the multi-vectors of each row, None if there are none."""
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


def _read_block(batch: Any) -> VectorBlock:  # noqa: ANN401
    column = batch.column(layout.VECTORS)
    # A copy: Arrow's memory is read-only, which torch warns of or copies at every use.
    numbers = np.array(column.flatten().flatten(), dtype=np.float16)
    return VectorBlock(
        page_ids=batch.column(layout.PAGE_ID).to_pylist(),
        vectors=numbers.reshape(-1, vector_dim(batch.schema)),
        lengths=np.array(column.value_lengths().fill_null(0), dtype=np.int64),
    )
