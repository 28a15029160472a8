"""Reading every byte of a store back and comparing it with its checksum, a few pages in memory at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgerank.errors import StoreError
from ridgerank.store import lance_dataset, layout
from ridgerank.store.catalog import DESCRIBED, Place, places_of
from ridgerank.store.page_store import PageStore
from ridgerank.store.rows import vectors_in

_ROWS_AT_ONCE = 64
_COLUMNS = [layout.PAGE_ID, layout.REFERENCES, layout.TEXT, layout.THUMBNAIL, layout.CHECKSUM, layout.PREFIX]


@dataclass(frozen=True, slots=True)
class Damage:
    """Something in a store that is not as it was written."""

    what: str
    """The page's first reference, or the data file where not even that can be read."""
    page_id: str | None
    reason: str


def damages(uri: str) -> Iterator[Damage]:
    """Every damaged page of the store, file by file; nothing where all is as written."""
    with PageStore.open(uri, mapped=False) as store:
        for fragment in store.fragments():
            try:
                with lance_dataset.telling("reading the rows"):
                    yield from _fragment_damages(store, fragment)
            except StoreError as error:
                names = ", ".join(str(file.path) for file in fragment.metadata.files)
                yield Damage(f"data file {names}", None, str(error))


def _fragment_damages(store: PageStore, fragment: Any) -> Iterator[Damage]:  # noqa: ANN401 (Lance is untyped)
    held = [name for name in (layout.VECTORS, layout.VECTORS_CHECKSUM) if name in fragment.schema.names]
    scanner = fragment.scanner(columns=[*_COLUMNS, *held], batch_size=_ROWS_AT_ONCE, **DESCRIBED)
    for batch in scanner.to_batches():
        found = batch.drop_columns([layout.VECTORS]).to_pylist() if held else batch.to_pylist()
        vectors = vectors_in(batch) if held else [None] * len(found)
        places = [Place(*map(int, place)) for place in places_of(batch)]
        faults = store.threads.map(partial(_fault, store), found, vectors, places)
        for row, reason in zip(found, faults, strict=True):
            if reason is not None:
                references: list[str] = row[layout.REFERENCES] or [row[layout.PAGE_ID]]
                yield Damage(references[0], row[layout.PAGE_ID], reason)


def _fault(
    store: PageStore, row: dict[str, Any], vectors: NDArray[np.float16] | None, place: Place
) -> str | None:
    try:
        block = np.empty(place.nbytes, dtype=np.uint8)
        store.blocks.read(place, 0, block.data)
    except (StoreError, MemoryError, ValueError) as error:
        return f"its prefix cannot be read: {error}"
    found = layout.checksum(row[layout.PAGE_ID], row[layout.TEXT], row[layout.THUMBNAIL], block)
    if found != row[layout.CHECKSUM]:
        return f"its bytes have checksum {found.hex()}, written was {row[layout.CHECKSUM].hex()}"
    if vectors is not None and layout.vectors_checksum(vectors) != row[layout.VECTORS_CHECKSUM]:
        return "its retriever vectors differ from their checksum"
    return None
