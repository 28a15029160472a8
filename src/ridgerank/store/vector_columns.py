"""A retriever's vectors in a store: whose they are, and reading them block by block.

A page has as many vectors as its retriever made of it, all of one dimension and of unit length. This module
knows no retriever: it takes whatever can turn a page image into vectors and say what it is.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from ridgerank.errors import ArtifactError, LineageMismatch
from ridgerank.lineage import describe_differences, to_json_line
from ridgerank.store import lance_dataset, layout
from ridgerank.store.catalog import Catalog
from ridgerank.store.rows import vector_dim

if TYPE_CHECKING:
    from PIL.Image import Image

_PAGES_PER_BLOCK = 64
_READ_AHEAD_BYTES = 64 << 20
"""What Lance may read ahead of a scan; unsaid, it takes two gigabytes."""
_PROBES = 32
"""Cells of the index that are searched for each vector of a query."""


@dataclass(frozen=True, slots=True)
class VectorOrigin:
    """Which retriever made the vectors of a store, and how."""

    source: str
    """The name or folder the retriever was loaded from, to load it again. Not compared: the weights are."""
    fingerprint: str
    """Digest of the retriever's weights, processor and prompts."""
    dim: int
    """Numbers in a vector."""
    pool_factor: int
    """How many vectors of a page were averaged into one; 1 is all of them."""

    def to_json(self) -> str:
        """One line of JSON, keys sorted."""
        return to_json_line(self)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        found = json.loads(text)
        wanted = {field.name for field in fields(cls)}
        if not isinstance(found, dict) or set(found) != wanted:
            raise ArtifactError(
                f"vectors described as {text!r}, wanted the fields {sorted(wanted)}: written by another "
                "version of ridgerank; index the pages again"
            )
        return cls(**found)

    def require(self, wanted: "VectorOrigin", *, artifact: str) -> None:
        """Refuse vectors of another retriever, showing both values of what differs."""
        if shown := describe_differences(self, wanted, ignored="source"):
            raise LineageMismatch(
                f"{artifact} holds vectors of the retriever {self.source!r}, not of {wanted.source!r} "
                f"({shown}); use that retriever, or index into another store"
            )


class PageEmbedder(Protocol):
    """Something that turns page images into vectors a store can hold."""

    @property
    def origin(self) -> VectorOrigin:
        """What it is."""

    def embed_pages(self, images: Sequence["Image"]) -> list[NDArray[np.float16]]:
        """Vectors (vectors, dim) of each page, of unit length."""


@dataclass(frozen=True, slots=True, eq=False)
class VectorBlock:
    """The vectors of some pages, one page after the other."""

    page_ids: list[str]
    vectors: NDArray[np.float16]
    """(vectors, dim)."""
    lengths: NDArray[np.int64]
    """(pages,) how many vectors each page has."""


class VectorColumn:
    """The vectors of one version of a store."""

    def __init__(self, opened: Any, uri: str, origin: VectorOrigin, catalog: Catalog) -> None:  # noqa: ANN401
        self.origin = origin
        self._dataset = opened
        self._uri = uri
        self._catalog = catalog

    def missing(self) -> list[str]:
        """List the pages that have no vectors."""
        with lance_dataset.telling(f"reading the page store at {self._uri}"):
            return without_vectors(self._dataset)

    def blocks(self) -> Iterator[VectorBlock]:
        """Read the vectors of all pages, some pages at a time, in the order stored."""
        with lance_dataset.telling(f"reading vectors from the page store at {self._uri}"):
            scanner = self._dataset.scanner(
                columns=[layout.PAGE_ID, layout.VECTORS],
                batch_size=_PAGES_PER_BLOCK,
                batch_readahead=2,
                fragment_readahead=1,
                io_buffer_size=_READ_AHEAD_BYTES,
                scan_in_order=True,
            )
            for batch in scanner.to_batches():
                yield _block(batch)

    def take(self, page_ids: Sequence[str]) -> VectorBlock:
        """Read the vectors of given pages, in the order asked for."""
        table = self._catalog.table(page_ids, [layout.PAGE_ID, layout.VECTORS])
        return _block(table.combine_chunks().to_batches()[0])

    @cached_property
    def indexed(self) -> bool:
        """Whether there is an index over the vectors, so that `nearest` need not read all of them."""
        return has_index(self._dataset)

    def nearest(self, query: NDArray[np.float32], k: int) -> list[str]:
        """Some `k` pages near to a query's vectors (tokens, dim), as the index estimates it, best first."""
        with lance_dataset.telling(f"searching the vectors of the page store at {self._uri}"):
            found = self._dataset.scanner(
                columns=[layout.PAGE_ID],
                nearest={"column": layout.VECTORS, "q": query, "k": k, "nprobes": _PROBES},
                disable_scoring_autoprojection=True,
            ).to_table()
            page_ids: list[str] = found.column(layout.PAGE_ID).to_pylist()
            return page_ids


def origin_at(uri: str) -> VectorOrigin | None:
    """Tell whose vectors the store at `uri` holds, None where it holds none or there is no store."""
    opened = lance_dataset.find(uri)
    return None if opened is None else origin_in(opened)


def origin_in(opened: Any) -> VectorOrigin | None:  # noqa: ANN401 (Lance is untyped)
    """Tell whose vectors a dataset has room for, None where it has none."""
    text = (opened.schema.metadata or {}).get(layout.RETRIEVER_KEY.encode())
    if text is None or layout.VECTORS not in opened.schema.names:
        return None
    return VectorOrigin.from_json(text.decode())


def without_vectors(opened: Any) -> list[str]:  # noqa: ANN401
    """List the pages of a dataset with a column of vectors that have none there."""
    # The checksum comes and goes with the vectors and is ten thousand times smaller to look through.
    table = opened.to_table(columns=[layout.PAGE_ID], filter=f"{layout.VECTORS_CHECKSUM} IS NULL")
    page_ids: list[str] = table.column(layout.PAGE_ID).to_pylist()
    return page_ids


def has_index(opened: Any) -> bool:  # noqa: ANN401
    """Whether a dataset's vectors are indexed."""
    return any(layout.VECTORS in index.field_names for index in opened.describe_indices())


def _block(batch: Any) -> VectorBlock:  # noqa: ANN401
    column = batch.column(layout.VECTORS)
    # A copy: what Arrow lends is read-only, and torch takes that with a warning or copies at every use.
    numbers = np.array(column.flatten().flatten(), dtype=np.float16)
    return VectorBlock(
        page_ids=batch.column(layout.PAGE_ID).to_pylist(),
        vectors=numbers.reshape(-1, vector_dim(batch.schema)),
        lengths=np.array(column.value_lengths().fill_null(0), dtype=np.int64),
    )
