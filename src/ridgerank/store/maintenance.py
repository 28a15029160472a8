"""Looking after a store: every byte compared with its checksum, documents listed and removed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgerank.errors import StoreError
from ridgerank.records import document_name
from ridgerank.store import lance_dataset, layout
from ridgerank.store.lance_dataset import find_broken_seals, shorten
from ridgerank.store.page_store import DESCRIBE_BLOBS, CatalogEntry, PageStore, read_prefix_ranges
from ridgerank.store.sidecar import forget_sources, source_owners
from ridgerank.store.store_writer import StoreWriter
from ridgerank.store.vector_columns import read_vectors

_BATCH_ROWS = 64
_COLUMNS = [name for name in layout.COLUMNS if name != layout.POSITIONS]


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
    columns = [*_COLUMNS, *vector_names]
    scanner = fragment.scanner(columns=columns, batch_size=_BATCH_ROWS, **DESCRIBE_BLOBS)
    for batch in scanner.to_batches():
        rows = batch.drop_columns([layout.VECTORS]).to_pylist() if vector_names else batch.to_pylist()
        vectors = read_vectors(batch) if vector_names else [None] * len(rows)
        entries = [CatalogEntry("", (), 0, *map(int, numbers)) for numbers in read_prefix_ranges(batch)]
        reasons = store.threads.map(partial(_find_fault, store), rows, vectors, entries)
        for row, reason in zip(rows, reasons, strict=True):
            if reason is not None:
                references: list[str] = row[layout.REFERENCES] or [str(row[layout.PAGE_ID])]
                yield Damage(references[0], row[layout.PAGE_ID], reason)


def _find_fault(
    store: PageStore, row: dict[str, Any], vectors: NDArray[np.float16] | None, entry: CatalogEntry
) -> str | None:
    empty = [
        name for name in (layout.PAGE_ID, layout.TEXT, layout.THUMBNAIL, layout.CHECKSUM) if row[name] is None
    ]
    if empty:
        return f"its {empty[0]} is missing"
    try:
        block = np.empty(entry.nbytes, dtype=np.uint8)
        store.blocks.read(entry, 0, block.data)
    except (StoreError, MemoryError, ValueError) as error:
        return f"its prefix cannot be read: {error}"
    checksum = layout.checksum(row[layout.PAGE_ID], row[layout.TEXT], row[layout.THUMBNAIL], block)
    if checksum != row[layout.CHECKSUM]:
        return f"its bytes have checksum {checksum.hex()}, written was {row[layout.CHECKSUM].hex()}"
    references, source = row[layout.REFERENCES] or (), row[layout.SOURCE] or ""
    if layout.names_checksum(row[layout.PAGE_ID], references, source) != row[layout.NAMES_CHECKSUM]:
        return "its names differ from their checksum"
    if vectors is not None and layout.vectors_checksum(vectors) != row[layout.VECTORS_CHECKSUM]:
        return "its retriever vectors differ from their checksum"
    return None


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document by its name; one content under two names is stored once and counts under both."""

    name: str
    """Empty for pages without any name, which stores of older releases may hold."""
    pages: int
    prefix_bytes: int
    path: str | None
    """Where it was indexed from, None if that is not known."""


@dataclass(frozen=True, slots=True)
class RemovalReport:
    """What removing documents has done."""

    removed: int
    """Pages that are gone."""
    kept: int
    """Pages that another document has, too."""


def list_stored_documents(store: PageStore) -> list[StoredDocument]:
    """Every document of a store, by name."""
    owners = source_owners(store.uri)
    counts: dict[str, tuple[int, int]] = {}
    for entry in store.catalog.entries(store.page_ids()):
        for name in {document_name(reference) for reference in entry.references} or {""}:
            pages, nbytes = counts.get(name, (0, 0))
            counts[name] = (pages + 1, nbytes + entry.nbytes)
    return [StoredDocument(name, *counts[name], owners.get(name)) for name in sorted(counts)]


def remove_documents(uri: str, names: Sequence[str]) -> RemovalReport:
    """Remove documents, by name or by the path they were indexed from; a page by its id.

    Pages that another document has, too, stay under its name. A name the store does not have is an error, and
    then nothing is removed. After a kill at any point the store is whole; run it again to finish.
    """
    with PageStore.open(uri) as store:
        lineage = store.lineage
    with StoreWriter(uri, lineage) as writer:
        references = writer.references()
        documents = {document_name(name) for page_names in references.values() for name in page_names}
        found, page_ids = _resolve(names, documents, references, source_owners(uri), uri)
        updated = {
            page_id: [name for name in page_names if document_name(name) not in found]
            for page_id, page_names in references.items()
            if page_id in page_ids or not found.isdisjoint(map(document_name, page_names))
        }
        gone = [page_id for page_id, left in updated.items() if not left or page_id in page_ids]
        kept = {page_id: left for page_id, left in updated.items() if page_id not in set(gone)}
        # Removed first: a kill in between leaves a name too many, never a page without one.
        writer.remove(gone)
        writer.set_references(kept)
        forget_sources(uri, found)
        if gone:
            writer.reclaim()
    return RemovalReport(len(gone), len(kept))


def _resolve(
    names: Iterable[str],
    documents: set[str],
    references: Mapping[str, object],
    owners: Mapping[str, str],
    uri: str,
) -> tuple[set[str], set[str]]:
    """The documents and the page ids that names stand for."""
    found: set[str] = set()
    page_ids: set[str] = set()
    unknown: list[str] = []
    for name in names:
        path = str(Path(name).expanduser().resolve())
        of_path = {each for each, owner in owners.items() if owner == path and each in documents}
        if name in documents:
            found.add(name)
        elif name in references:
            page_ids.add(name)
        elif of_path:
            found |= of_path
        else:
            unknown.append(name)
    if unknown:
        near = get_close_matches(unknown[0], sorted(documents), n=3)
        advice = f"did you mean {' or '.join(near)}?" if near else f"see `ridgerank store list {uri}`"
        raise StoreError(f"no document {shorten(unknown)} in the page store at {uri}; {advice}")
    return found, page_ids
