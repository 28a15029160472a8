"""After the last page: the names pages have now, and what is still missing of them."""

from ridgerank.documents.ocr import lacks_text
from ridgerank.indexing.listing import Listing
from ridgerank.store.page_store import PageStore
from ridgerank.store.store_writer import StoreWriter
from ridgerank.store.vector_columns import VectorOrigin


def without_vectors(writer: StoreWriter, origin: VectorOrigin | None) -> tuple[str, ...]:
    """Name the stored pages that have no vectors of this retriever."""
    if origin is None:
        return ()
    lacking = writer.open_vectors(origin)
    names = writer.references() if lacking else {}
    return tuple(sorted((*names[page_id], page_id)[0] for page_id in lacking))


def without_text(uri: str) -> tuple[str, ...]:
    """Name the stored pages that have next to no text, those of earlier runs included."""
    with PageStore.open(uri) as store:
        blank = [page_id for page_id, text in store.texts().items() if lacks_text(text)]
        return tuple(sorted(store.reference(page_id) for page_id in blank))


def settle_names(writer: StoreWriter, listing: Listing, *, prune: bool) -> int:
    """Give every stored page the names it has now; with `prune`, remove pages left without one."""
    owner = {name: page_id for page_id, names in listing.names.items() for name in names}
    unread = {failure.reference for failure in listing.failures}
    changed: dict[str, tuple[str, ...]] = {}
    gone: list[str] = []
    for page_id, names in writer.references().items():
        listed = listing.names.get(page_id, [])
        # A name is kept where it still stands for this page, or where nothing is known of it.
        kept = [name for name in names if name not in owner and (not prune or name.split("#")[0] in unread)]
        settled = tuple(sorted({*listed, *kept}))
        if not settled and prune:
            gone.append(page_id)
        elif settled != tuple(sorted(names)):
            changed[page_id] = settled
    writer.set_references(changed)
    if gone:
        writer.remove(gone)
        writer.reclaim()
    return len(gone)
