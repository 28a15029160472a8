"""Reading every byte of a store back and comparing it with its checksum, a few pages at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgerank.errors import StoreError
from ridgerank.store import lance_dataset, layout
from ridgerank.store.catalog import DESCRIBE_BLOBS, PrefixRange, read_prefix_ranges
from ridgerank.store.manifest_seal import find_broken_seals
from ridgerank.store.page_store import PageStore
from ridgerank.store.rows import read_vectors

_BATCH_ROWS = 64
_COLUMNS = [layout.PAGE_ID, layout.REFERENCES, layout.TEXT, layout.THUMBNAIL, layout.CHECKSUM, layout.PREFIX]
_NAMES = [layout.SOURCE, layout.NAMES_CHECKSUM]
"""Read besides where the store has checksums of names."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A page or a file of a store that is not as it was written."""

    what: str
    """The page's first reference, or the data file where not even that can be read."""
    page_id: str | None
    reason: str


def find_damage(uri: str) -> Iterator[Damage]:
    """Every damaged file and page of the store; none where all is as written."""
    root = lance_dataset.local_root(uri)
    for name in () if root is None else find_broken_seals(root):
        yield Damage(f"file {name}", None, "is missing or not as it was written")
    with PageStore.open(uri, mapped=False) as store:
        try:
            _ = store.shared
        except StoreError as error:
            yield Damage(layout.SHARED, None, str(error))
        for fragment in store.fragments():
            try:
                with lance_dataset.wrap_errors("reading the rows"):
                    yield from _find_fragment_damage(store, fragment)
            except StoreError as error:
                names = ", ".join(str(file.path) for file in fragment.metadata.files)
                yield Damage(f"data file {names}", None, str(error))


def _find_fragment_damage(store: PageStore, fragment: Any) -> Iterator[Damage]:  # noqa: ANN401 (Lance is untyped)
    vector_names = [
        name for name in (layout.VECTORS, layout.VECTORS_CHECKSUM) if name in fragment.schema.names
    ]
    names = _NAMES if layout.NAMES_CHECKSUM in fragment.schema.names else []
    columns = [*_COLUMNS, *names, *vector_names]
    scanner = fragment.scanner(columns=columns, batch_size=_BATCH_ROWS, **DESCRIBE_BLOBS)
    for batch in scanner.to_batches():
        rows = batch.drop_columns([layout.VECTORS]).to_pylist() if vector_names else batch.to_pylist()
        vectors = read_vectors(batch) if vector_names else [None] * len(rows)
        ranges = [PrefixRange(*map(int, numbers)) for numbers in read_prefix_ranges(batch)]
        reasons = store.threads.map(partial(_find_fault, store), rows, vectors, ranges)
        for row, reason in zip(rows, reasons, strict=True):
            if reason is not None:
                references: list[str] = row[layout.REFERENCES] or [str(row[layout.PAGE_ID])]
                yield Damage(references[0], row[layout.PAGE_ID], reason)


def _find_fault(
    store: PageStore, row: dict[str, Any], vectors: NDArray[np.float16] | None, prefix_range: PrefixRange
) -> str | None:
    empty = [
        name for name in (layout.PAGE_ID, layout.TEXT, layout.THUMBNAIL, layout.CHECKSUM) if row[name] is None
    ]
    if empty:
        return f"its {empty[0]} is missing"
    try:
        block = np.empty(prefix_range.nbytes, dtype=np.uint8)
        store.blocks.read(prefix_range, 0, block.data)
    except (StoreError, MemoryError, ValueError) as error:
        return f"its prefix cannot be read: {error}"
    checksum = layout.checksum(row[layout.PAGE_ID], row[layout.TEXT], row[layout.THUMBNAIL], block)
    if checksum != row[layout.CHECKSUM]:
        return f"its bytes have checksum {checksum.hex()}, written was {row[layout.CHECKSUM].hex()}"
    if layout.NAMES_CHECKSUM in row:
        references, source = row[layout.REFERENCES] or (), row[layout.SOURCE] or ""
        if layout.names_checksum(row[layout.PAGE_ID], references, source) != row[layout.NAMES_CHECKSUM]:
            return "its names differ from their checksum"
    if vectors is not None and layout.vectors_checksum(vectors) != row[layout.VECTORS_CHECKSUM]:
        return "its retriever vectors differ from their checksum"
    return None
