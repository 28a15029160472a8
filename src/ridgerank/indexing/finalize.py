"""After the last page: update the references of stored pages, and list pages without vectors or text."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ridgerank.documents.ocr import has_little_text
from ridgerank.errors import StoreError
from ridgerank.indexing.listing import Listing
from ridgerank.records import document_name
from ridgerank.store.page_filter import labels_of
from ridgerank.store.page_store import PageStore
from ridgerank.store.store_writer import StoreWriter
from ridgerank.store.vector_columns import VectorOrigin


def references_without_vectors(writer: StoreWriter, origin: VectorOrigin | None) -> tuple[str, ...]:
    """References of the stored pages that have no vectors of this retriever."""
    if origin is None:
        return ()
    lacking = writer.open_vectors(origin)
    references = writer.references() if lacking else {}
    return tuple(sorted((*references[page_id], page_id)[0] for page_id in lacking))


def references_without_text(uri: str) -> tuple[str, ...]:
    """References of the stored pages that have next to no text, those of earlier runs included."""
    with PageStore.open(uri) as store:
        blank = [page_id for page_id, text in store.texts().items() if has_little_text(text)]
        return tuple(sorted(store.reference(page_id) for page_id in blank))


def update_labels(writer: StoreWriter, listing: Listing, metadata: Mapping[Path, Mapping[str, Any]]) -> None:
    """Give every listed page the labels that the metadata of its files says, and no others."""
    if not metadata:
        return
    before = writer.labels()
    changed: dict[str, tuple[str, ...]] = {}
    labels_by_page: dict[str, set[str]] = {}
    for path, refs in listing.documents.items():
        fields = metadata.get(path, {}).items()
        labels = {label for key, value in fields for label in labels_of(key, value)}
        for ref in refs:
            labels_by_page.setdefault(ref.page_id, set()).update(labels)
    for page_id, labels in labels_by_page.items():
        if tuple(sorted(labels)) != before.get(page_id, ()):
            changed[page_id] = tuple(sorted(labels))
    stored = writer.page_ids()
    writer.set_labels({page_id: labels for page_id, labels in changed.items() if page_id in stored})


@dataclass(frozen=True, slots=True)
class RemovedPages:
    """How many pages left the store when its references were updated."""

    replaced: int = 0
    """Pages of files that have changed: their content is in no file any more."""
    pruned: int = 0


def update_references(
    writer: StoreWriter, listing: Listing, unread: Collection[str], *, prune: bool
) -> RemovedPages:
    """Give every stored page the references it has now; a page that loses its last one is removed.

    A reference stays where it is listed for this page, where its file is not under the paths, and where its
    file, or the folder of it, is among `unread`: those could not be read whole this time. With `prune`, files
    that are not under the paths have no pages either.
    """
    listed_references = {name for references in listing.references.values() for name in references}
    listed_documents = {document_name(name) for name in listed_references}
    changed: dict[str, tuple[str, ...]] = {}
    replaced: list[str] = []
    pruned: list[str] = []
    for page_id, references in writer.references().items():
        listed = listing.references.get(page_id, [])
        outdated = [name for name in references if name in listed_references]
        kept = []
        for name in set(references).difference(listed_references):
            if _is_unread(name, unread) or not (prune or document_name(name) in listed_documents):
                kept.append(name)
            elif document_name(name) in listed_documents:
                outdated.append(name)
        updated = tuple(sorted({*listed, *kept}))
        if updated != tuple(sorted(references)) or (prune and not updated):
            if updated:
                changed[page_id] = updated
            else:
                (replaced if outdated else pruned).append(page_id)
    if pruned and not listing.refs and len(pruned) == len(writer.page_ids()):
        raise StoreError(
            f"no page was found, and pruning would remove all {len(pruned)} of the page store at "
            f"{writer.uri}; check the paths, or remove the store's folder"
        )
    # Removed first: a kill in between leaves names to be put right, not pages without any.
    writer.remove([*replaced, *pruned])
    writer.set_references(changed)
    if replaced or pruned:
        writer.reclaim()
    return RemovedPages(len(replaced), len(pruned))


def _is_unread(reference: str, unread: Collection[str]) -> bool:
    document = document_name(reference)
    folders = (document[:end] for end, character in enumerate(document) if character == "/")
    return any(name in unread for name in (reference, document, *folders))
