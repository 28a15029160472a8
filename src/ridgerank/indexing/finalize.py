"""After the last page: update the references of stored pages, and list pages without vectors or text."""

from ridgerank.documents.ocr import has_little_text
from ridgerank.indexing.listing import Listing
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


def update_references(writer: StoreWriter, listing: Listing, *, prune: bool) -> int:
    """Update the references of every stored page; with `prune`, remove pages that have none left."""
    listed_references = {name for references in listing.references.values() for name in references}
    unread = {failure.reference for failure in listing.failures}
    changed: dict[str, tuple[str, ...]] = {}
    removed: list[str] = []
    for page_id, references in writer.references().items():
        listed = listing.references.get(page_id, [])
        # A reference stays where it is listed for this page, or where its file could not be read.
        kept = [
            name
            for name in references
            if name not in listed_references and (not prune or name.split("#")[0] in unread)
        ]
        updated = tuple(sorted({*listed, *kept}))
        if not updated and prune:
            removed.append(page_id)
        elif updated != tuple(sorted(references)):
            changed[page_id] = updated
    writer.set_references(changed)
    if removed:
        writer.remove(removed)
        writer.reclaim()
    return len(removed)
