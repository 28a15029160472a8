"""The documents of a store: which there are, and how one is removed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from ridgerank.errors import StoreError
from ridgerank.records import document_name
from ridgerank.store.lance_dataset import shorten
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import forget_sources, source_owners
from ridgerank.store.store_writer import StoreWriter


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document by its name; one content under two names is stored once and counts under both."""

    name: str
    """Empty for pages without any name, which stores of older releases may hold."""
    pages: int
    prefix_bytes: int
    path: str | None
    """Where it was indexed from, None where that is not known."""


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
            counts[name] = (pages + 1, nbytes + entry.prefix_range.nbytes)
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
