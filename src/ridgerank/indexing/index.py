"""Documents into a store: list, skip stored pages, render, encode, compress, commit.

With a retriever's encoder, its vectors are computed from the same rendered image. A page that has its prefix
but no vectors is rendered again and gets them.

Indexing may be interrupted at any time. A second run gives the same store as an uninterrupted one: pages go
through the model in batches cut from the whole list, not from the pages that remain, and a batch is
committed whole.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.load import load_backbone
from ridgerank.backbones.model_settings import ModelSettings
from ridgerank.documents.ocr import Recognizer, has_little_text
from ridgerank.documents.sources import Failure, read_metadata
from ridgerank.errors import BackboneError, StoreError
from ridgerank.indexing.encode import (
    EncodingDescription,
    PageEncoder,
    describe_encoding,
    group_for_commits,
    render_batches,
)
from ridgerank.indexing.names import Listing, list_documents, name_documents
from ridgerank.lineage import Keep, NumberFormat, StoragePreset, StorageSetting
from ridgerank.processes import usable_cores
from ridgerank.records import document_name
from ridgerank.store.lance_dataset import open_dataset, read_lineage
from ridgerank.store.page_filter import labels_of
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import remember_sources, source_owners
from ridgerank.store.store_writer import StoreWriter
from ridgerank.store.vector_columns import PageEmbedder, VectorOrigin

MIN_INDEXED_PAGES = 10_000
"""A store of at least this size gets indices: over page ids and references, to look pages up without listing
all of them, and over vectors. The vectors of a smaller store are searched exactly, block by block."""


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """How far indexing is: passed to `progress` after listing, after each commit and for each failure."""

    done: int = 0
    """Pages under the paths that the store has, vectors included if a retriever is given."""
    total: int = 0
    """Different pages under the paths; 0 until all are listed."""
    nbytes: int = 0
    """Prefixes and vectors committed so far."""
    failure: Failure | None = None
    """The file or page that could not be read just now; indexing continues."""


ProgressCallback = Callable[[IndexProgress], None]


@dataclass(frozen=True, slots=True)
class IndexReport:
    """The result of indexing."""

    pages: int
    """Different pages under the paths."""
    added: int
    skipped: int
    """Pages the store had already."""
    embedded: int
    """Pages the store had already, that got vectors."""
    without_vectors: tuple[str, ...]
    """Stored pages that still have no vectors, by name: they are not among the documents given."""
    without_text: tuple[str, ...]
    """Stored pages that are blank to a model that reads text, by name."""
    copies: int
    """Further references to the same content: stored once, found by every reference."""
    removed: int
    """Pages that were not under the paths, with `prune`."""
    replaced: int
    """Pages of files that have changed since: removed."""
    skipped_files: int
    """Files in folders that are neither PDF nor image."""
    prefix_bytes: int
    """Bytes of the prefixes added."""
    seconds: float
    failures: tuple[Failure, ...]
    renamed: tuple[str, ...]
    """A line for each file whose name belongs to another one: its longer name, and why."""


def index_documents(
    paths: str | Path | Iterable[str | Path],
    store: str | Path,
    backbone: Backbone | str | None = None,
    *,
    exit_layer: int | None = None,
    keep: Keep | None = None,
    numbers: NumberFormat | None = None,
    preset: StoragePreset = "paper",
    prune: bool = False,
    processes: int | None = None,
    batch_pages: int | None = None,
    recognizer: Recognizer | None = None,
    embedder: PageEmbedder | None = None,
    progress: ProgressCallback | None = None,
) -> IndexReport:
    """Bring every page under `paths`, files and folders, into a store; one that is not there is created.

    The backbone is a loaded one, or the name or folder to load it from. A new store needs one; pages that
    are added to a store are read by the model it was made with.
    What `exit_layer`, `keep` and `numbers` leave open is as the `preset` says; `ridgerank index` takes
    `small`.
    Stored pages are neither rendered nor encoded again. The pages of a file that has changed are replaced.
    A file whose name belongs to another file gets its folder in front of it. With `prune`, pages that are not
    under `paths` are removed, except pages of files that could not be read this time. With a `recognizer`,
    pages without a text layer get the text recognized in their image. With an `embedder`, every page also
    gets a retriever's vectors, and a large store an index over them. `progress` is called meanwhile.
    """
    if backbone is None:
        backbone = _load_stored_backbone(str(store))
    elif isinstance(backbone, str):
        backbone = load_backbone(backbone)
    storage = StorageSetting.from_preset(
        preset,
        layers=backbone.geometry.layers,
        reads_text=backbone.reads_text,
        keep=keep,
        numbers=numbers,
        exit_layer=exit_layer,
    )
    page_encoder = PageEncoder.create(backbone, embedder, storage)
    processes = min(8, usable_cores()) if processes is None else processes
    description = describe_encoding(page_encoder)
    return run_index(
        [paths] if isinstance(paths, str | Path) else paths,
        str(store),
        description,
        partial(
            _encode_here,
            page_encoder=page_encoder,
            recognizer=recognizer,
            batch_pages=batch_pages or description.batch_pages,
            processes=processes,
        ),
        progress=progress,
        prune=prune,
        processes=processes,
    )


@dataclass(frozen=True, slots=True)
class IndexTask:
    """What remains to be done once the documents are listed."""

    writer: StoreWriter
    listing: Listing
    stored: frozenset[str]
    """Pages that have their prefix."""
    done: frozenset[str]
    """Pages that have all they need."""
    failed: Callable[[Failure], None]
    """To be called with every page that could not be read."""


class Commit(NamedTuple):
    """What one commit has added to the store."""

    added: int
    embedded: int
    """Pages stored before that got vectors."""
    prefix_bytes: int
    nbytes: int
    """Prefixes and vectors."""


def run_index(
    paths: Iterable[str | Path],
    uri: str,
    description: EncodingDescription,
    encode: Callable[[IndexTask], Iterator[Commit]],
    *,
    progress: ProgressCallback | None,
    prune: bool = False,
    processes: int = 1,
) -> IndexReport:
    """List documents, let `encode` encode and commit the missing pages, then update references and indices.

    To a model that reads text, a page without text is blank: the report then names such pages.
    """
    start = time.perf_counter()
    paths = list(paths)
    metadata = read_metadata(paths)
    origin = description.origin
    added = embedded = prefix_bytes = nbytes = done_before = total = 0

    def notify(failure: Failure | None = None) -> None:
        if progress is not None:
            progress(IndexProgress(done_before + added + embedded, total, nbytes, failure))

    def fail(failure: Failure) -> None:
        listing.failures.append(failure)
        notify(failure)

    with StoreWriter(uri, description.lineage, description.shared) as writer:
        page_ids_without_vectors = frozenset() if origin is None else writer.open_vectors(origin)
        listing = list_documents(paths, notify, processes=processes)
        stored = writer.page_ids()
        owners = source_owners(uri)
        renamed = name_documents(listing, owners, writer.references())
        remember_sources(uri, listing.paths)
        skipped = sum(page_id in stored for page_id in listing.refs)
        done = stored - page_ids_without_vectors
        done_before, total = sum(page_id in done for page_id in listing.refs), len(listing.refs)
        notify()
        for commit in encode(IndexTask(writer, listing, stored, done, fail)):
            added, embedded = added + commit.added, embedded + commit.embedded
            prefix_bytes, nbytes = prefix_bytes + commit.prefix_bytes, nbytes + commit.nbytes
            notify()
        replaced, pruned = update_references(writer, listing, _unread_names(listing, owners), prune=prune)
        update_labels(writer, listing, metadata)
        without_vectors = references_without_vectors(writer, origin)
        if len(writer.page_ids()) >= MIN_INDEXED_PAGES:
            writer.index_pages()
            if origin is not None and (added or embedded):
                writer.index_vectors()
    return IndexReport(
        pages=total,
        added=added,
        skipped=skipped,
        embedded=embedded,
        without_vectors=without_vectors,
        without_text=references_without_text(uri) if description.reads_text else (),
        copies=listing.copies,
        removed=pruned,
        replaced=replaced,
        renamed=renamed,
        skipped_files=listing.skipped_files,
        prefix_bytes=prefix_bytes,
        seconds=time.perf_counter() - start,
        failures=tuple(listing.failures),
    )


def _unread_names(listing: Listing, owners: Mapping[str, str]) -> set[str]:
    """The names of what could not be read, those that a file has from earlier runs included."""
    files = {str(failure.path.resolve()) for failure in listing.failures if failure.path is not None}
    return {failure.reference for failure in listing.failures} | {
        name for name, owner in owners.items() if owner in files
    }


def _encode_here(
    task: IndexTask,
    *,
    page_encoder: PageEncoder,
    recognizer: Recognizer | None,
    batch_pages: int,
    processes: int,
) -> Iterator[Commit]:
    """Encode in this process; only rendering runs in others. Yields after each commit."""
    numbered = task.listing.number_batches(task.done, batch_pages)
    max_pixels = page_encoder.backbone.page_budget
    pages = render_batches(numbered, task.failed, recognizer, max_pixels, processes)
    for encoded in group_for_commits(
        page_encoder.encode(batch, task.listing, task.stored) for batch in pages
    ):
        task.writer.append(encoded.rows)
        task.writer.set_vectors(encoded.vectors)
        yield Commit(len(encoded.rows), len(encoded.vectors), encoded.prefix_bytes, encoded.nbytes)


def _load_stored_backbone(store: str) -> Backbone:
    """The model a store was made with."""
    dataset = open_dataset(store)
    if dataset is None:
        raise BackboneError(f"{describe_models(store)}\nName one, or pass a loaded one, as backbone.")
    return ModelSettings.from_lineage(read_lineage(dataset, store)).load()


MODEL_CHOICES = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": (
        0.63,
        "reads the text of pages, for CPUs",
        "measured on 51 pages",
    ),
    "Qwen/Qwen2.5-VL-3B-Instruct": (1.03, "looks at page images, 7.6 GB of weights", "arithmetic"),
    "Qwen/Qwen2.5-VL-7B-Instruct": (2.05, "looks at page images, 16.6 GB of weights", "arithmetic"),
}
"""Models to begin with: megabytes of a page in the preset `small`, what the model reads, and how we know."""


def describe_models(store: str) -> str:
    """The error message for a new store without a model."""
    lines = [f"there is no page store at {store} yet, and a new one needs a model. Three to choose from:"]
    for name, (megabytes, reads, source) in MODEL_CHOICES.items():
        lines.append(f"  {name:36} {reads}: {megabytes} MB a page ({source})")
    return "\n".join(lines)


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


def update_references(
    writer: StoreWriter, listing: Listing, unread: Collection[str], *, prune: bool
) -> tuple[int, int]:
    """Give every stored page the references it has now; a page that loses its last one is removed.

    A reference stays if it is listed for this page, if its file is not under the paths, and if its file or
    folder is among `unread`, which could not be read whole this time. With `prune`, files that are not under
    the paths have no pages either. Returns how many pages were replaced, as their files have changed, and
    how many were pruned.
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
    return len(replaced), len(pruned)


def _is_unread(reference: str, unread: Collection[str]) -> bool:
    document = document_name(reference)
    folders = (document[:end] for end, character in enumerate(document) if character == "/")
    return any(name in unread for name in (reference, document, *folders))
