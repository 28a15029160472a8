"""Looking after a store: every byte compared with its checksum, documents listed and removed."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgerank.errors import StoreError, WriteError
from ridgerank.records import document_name
from ridgerank.store import lance_dataset, layout
from ridgerank.store.judgements import Judgements
from ridgerank.store.lance_dataset import shorten
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import forget_sources, source_owners
from ridgerank.store.store_writer import StoreWriter
from ridgerank.store.vector_columns import read_vectors

_BATCH_ROWS = 64
_COLUMNS = [name for name in layout.COLUMNS if name not in (layout.POSITIONS, layout.PREFIX)]


@dataclass(frozen=True, slots=True)
class Damage:
    """A page or a file of a store that is not as it was written."""

    what: str
    """The page's first reference, or the data file where not even that can be read."""
    page_id: str | None
    reason: str


def find_damage(uri: str) -> Iterator[Damage]:
    """Every damaged file and page of the store; none where all is as written."""
    from ridgerank.store.probe import read_probe  # torch, which other maintenance does without

    with PageStore.open(uri) as store:
        files: dict[str, Callable[[], object]] = {
            layout.BASIS: lambda: store.basis,
            layout.PROBE: lambda: read_probe(uri),
            layout.SOURCES: lambda: source_owners(uri),
        }
        for name, read in files.items():
            try:
                read()
            except StoreError as error:
                yield Damage(name, None, str(error))
        for path, number, reason in Judgements(uri).check() if lance_dataset.local_root(uri) else ():
            yield Damage(f"{layout.JUDGEMENTS}/{path.name}, line {number}", None, str(reason))
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
    scanner = fragment.scanner(
        columns=[*_COLUMNS, *vector_names], batch_size=_BATCH_ROWS, with_row_address=True
    )
    for batch in scanner.to_batches():
        rows = batch.drop_columns([layout.VECTORS]).to_pylist() if vector_names else batch.to_pylist()
        vectors = read_vectors(batch) if vector_names else [None] * len(rows)
        for row, row_vectors in zip(rows, vectors, strict=True):
            reason = _find_fault(store, row, row_vectors)
            if reason is not None:
                references: list[str] = row[layout.REFERENCES] or [str(row[layout.PAGE_ID])]
                yield Damage(references[0], row[layout.PAGE_ID], reason)


def _find_fault(store: PageStore, row: dict[str, Any], vectors: NDArray[np.float16] | None) -> str | None:
    names = (layout.PAGE_ID, layout.SOURCE, layout.TEXT, layout.THUMBNAIL, layout.CHECKSUM)
    empty = [name for name in names if row[name] is None]
    if empty:
        return f"its {empty[0]} is missing"
    if row[layout.PREFIX_BYTES]:
        try:
            [block] = store.read_blocks([row["_rowaddr"]]).values()
        except StoreError as error:
            return f"its prefix cannot be read: {error}"
        if layout.block_checksum(block or b"") != row[layout.PREFIX_CHECKSUM]:
            return "its prefix differs from its checksum"
    content = (row[layout.SOURCE], row[layout.TEXT], row[layout.THUMBNAIL])
    if layout.checksum(row[layout.PAGE_ID], row[layout.REFERENCES] or (), *content) != row[layout.CHECKSUM]:
        return "its names, text or thumbnail differ from their checksum"
    if vectors is not None and layout.vectors_checksum(vectors) != row[layout.VECTORS_CHECKSUM]:
        return "its retriever vectors differ from their checksum"
    return None


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document by its name; one content under two names is stored once and counts under both."""

    name: str
    pages: int
    prefix_bytes: int
    path: str | None


@dataclass(frozen=True, slots=True)
class RemovalReport:
    """What removing documents has done."""

    removed: int
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
    """Remove documents, by name, by glob or by the path they were indexed from; a page by its id.

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
        gone = {page_id for page_id, left in updated.items() if not left or page_id in page_ids}
        kept = {page_id: left for page_id, left in updated.items() if page_id not in gone}
        # Removed first: a kill in between leaves a name too many, never a page without one.
        writer.remove(sorted(gone))
        try:
            writer.set_references(kept)
            writer.reclaim()
            forget_sources(uri, found)  # last: until then the same names can be given again
        except (StoreError, WriteError) as error:
            raise StoreError(
                f"{len(gone)} pages are removed from {uri} and found no more, but their space is not free "
                f"yet ({error}); free some of the disk and remove the same documents again"
            ) from error
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
    names_of_path: dict[str, set[str]] = {}
    for name, owner in owners.items():
        names_of_path.setdefault(owner, set()).add(name)
    for name in names:
        path = os.path.realpath(os.path.expanduser(name))  # noqa: PTH111 (a `Path` raises on some names)
        if name in documents or name in owners:  # only there: it was removed, and that was interrupted
            found.add(name)
        elif name in references:
            page_ids.add(name)
        elif path in names_of_path:
            found |= names_of_path[path]
        elif fitting := {  # a glob without a folder is one of files' own names
            each for each in documents if fnmatchcase(each if "/" in name else PurePath(each).name, name)
        }:
            found |= fitting
        else:
            unknown.append(name)
    if unknown:
        near = get_close_matches(unknown[0], sorted(documents), n=3)
        advice = f"did you mean {' or '.join(near)}?" if near else f"see `ridgerank store list {uri}`"
        raise StoreError(f"no document {shorten(unknown)} in the page store at {uri}; {advice}")
    return found, page_ids
