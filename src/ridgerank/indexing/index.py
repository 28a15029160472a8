"""Documents into a store: list, skip stored pages, render, encode, compress, commit.

With a retriever's encoder, its vectors are computed from the same rendered image. A page that has its prefix
but no vectors is rendered again and gets them.

Indexing may be interrupted at any time. A second run gives the same store as an uninterrupted one: pages go
through the model in batches cut from the whole list, not from the pages that remain, and a batch is
committed whole.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.load import load_backbone
from ridgerank.documents.metadata_file import read_metadata
from ridgerank.documents.ocr import Recognizer
from ridgerank.indexing.document_names import name_documents
from ridgerank.indexing.encode import PageEncoder, default_batch_pages, group_for_commits
from ridgerank.indexing.finalize import (
    references_without_text,
    references_without_vectors,
    update_labels,
    update_references,
)
from ridgerank.indexing.listing import IndexTask, Listing, list_documents, number_batches, render_batches
from ridgerank.indexing.progress import EncodeHook, IndexHook, IndexPlan, IndexReport, SilentIndexHook
from ridgerank.lineage import Lineage
from ridgerank.store.compress import encode_shared
from ridgerank.store.layout import SharedPrefix
from ridgerank.store.model_lineage import complete_setting, make_lineage
from ridgerank.store.number_format import NumberFormat
from ridgerank.store.pruning import Keep
from ridgerank.store.sidecar import remember_sources, source_owners
from ridgerank.store.storage_setting import StoragePreset
from ridgerank.store.store_writer import StoreWriter
from ridgerank.store.vector_columns import PageEmbedder, VectorOrigin
from ridgerank.worker_process import usable_cores

MIN_INDEXED_PAGES = 10_000
"""A store of at least this size gets indices: over page ids and references, to look pages up without listing
all of them, and over vectors. The vectors of a smaller store are searched exactly, block by block."""


def index_documents(
    paths: str | Path | Iterable[str | Path],
    store: str | Path,
    backbone: Backbone | str,
    *,
    exit_layer: int | None = None,
    join_layer: int = 0,
    keep: Keep | None = None,
    numbers: NumberFormat | None = None,
    preset: StoragePreset = "paper",
    prune: bool = False,
    processes: int | None = None,
    batch_pages: int | None = None,
    recognizer: Recognizer | None = None,
    embedder: PageEmbedder | None = None,
    encode_hook: EncodeHook | None = None,
    hook: IndexHook | None = None,
) -> IndexReport:
    """Bring every page under `paths`, files and folders, into a store; one that is not there is created.

    The backbone is a loaded one, or the name or folder to load it from.
    What `exit_layer`, `keep` and `numbers` leave open is as the `preset` says; `ridgerank index` takes
    `small`.
    Stored pages are neither rendered nor encoded again. The pages of a file that has changed are replaced.
    A file whose name belongs to another file gets its folder in front of it. With `prune`, pages that are not
    under `paths` are removed, except pages of files that could not be read this time. With a `recognizer`,
    pages without a text layer get the text recognized in their image. With an `embedder`, every page also
    gets a retriever's vectors, and a large store an index over them.
    """
    if isinstance(backbone, str):
        backbone = load_backbone(backbone)
    setting = complete_setting(backbone, preset, keep=keep, numbers=numbers, exit_layer=exit_layer)
    keep, numbers, exit_layer = setting.keep, setting.numbers, setting.exit_layer
    backbone.geometry.require_layers(join_layer, exit_layer)
    processes = _default_processes() if processes is None else processes
    shared = encode_shared(backbone, numbers, exit_layer=exit_layer, join_layer=join_layer)
    return run_index(
        [paths] if isinstance(paths, str | Path) else paths,
        str(store),
        make_lineage(backbone, exit_layer=exit_layer, join_layer=join_layer, keep=keep, numbers=numbers),
        _LocalEncodingExecutor(
            PageEncoder(backbone, embedder, encode_hook, exit_layer, join_layer, keep, numbers, shared),
            recognizer,
            batch_pages or default_batch_pages(backbone),
            processes,
        ),
        hook=hook or SilentIndexHook(),
        origin=None if embedder is None else embedder.origin,
        reads_text=backbone.reads_text,
        encode_hook=encode_hook,
        shared=shared,
        prune=prune,
        processes=processes,
    )


@dataclass(frozen=True, slots=True)
class CommitCounts:
    """What one commit has added to the store."""

    added: int
    embedded: int
    """Pages stored before that got vectors."""
    prefix_bytes: int
    nbytes: int
    """Prefixes and vectors."""


class EncodingExecutor(Protocol):
    """Encodes the pages of a task and commits them, in this process or on other machines."""

    def commits(self, task: IndexTask, writer: StoreWriter, hook: IndexHook) -> Iterator[CommitCounts]:
        """Do the task; yields after each commit."""


def run_index(
    paths: Iterable[str | Path],
    uri: str,
    lineage: Lineage,
    executor: EncodingExecutor,
    *,
    hook: IndexHook,
    origin: VectorOrigin | None,
    reads_text: bool,
    encode_hook: EncodeHook | None = None,
    shared: SharedPrefix | None = None,
    prune: bool = False,
    processes: int = 1,
) -> IndexReport:
    """List documents, let `executor` encode the missing pages, then update references and indices.

    To a model that `reads_text`, a page without text is blank: the report then names such pages.
    """
    start = time.perf_counter()
    paths = list(paths)
    metadata = read_metadata(paths)
    with StoreWriter(uri, lineage, shared) as writer:
        page_ids_without_vectors = frozenset() if origin is None else writer.open_vectors(origin)
        listing = list_documents(paths, hook, processes=processes)
        stored = writer.page_ids()
        owners = source_owners(uri)
        renamed = name_documents(listing, owners, writer.references())
        remember_sources(uri, listing.paths)
        if encode_hook is not None:
            encode_hook.listed(listing.refs, stored)
        skipped = sum(page_id in stored for page_id in listing.refs)
        done = stored - page_ids_without_vectors
        hook.planned(IndexPlan(len(listing.refs), sum(page_id in done for page_id in listing.refs)))
        added = embedded = nbytes = 0
        for commit in executor.commits(IndexTask(listing, stored, done), writer, hook):
            hook.committed(commit.added + commit.embedded, commit.nbytes)
            added, embedded = added + commit.added, embedded + commit.embedded
            nbytes += commit.prefix_bytes
        removed = update_references(writer, listing, _unread_names(listing, owners), prune=prune)
        update_labels(writer, listing, metadata)
        without_vectors = references_without_vectors(writer, origin)
        if len(writer.page_ids()) >= MIN_INDEXED_PAGES:
            writer.index_pages()
            if origin is not None and (added or embedded):
                writer.index_vectors()
    return IndexReport(
        pages=len(listing.refs),
        added=added,
        skipped=skipped,
        embedded=embedded,
        without_vectors=without_vectors,
        without_text=references_without_text(uri) if reads_text else (),
        copies=listing.copies,
        removed=removed.pruned,
        replaced=removed.replaced,
        renamed=tuple(map(str, renamed)),
        skipped_files=listing.skipped_files,
        prefix_bytes=nbytes,
        seconds=time.perf_counter() - start,
        failures=tuple(listing.failures),
    )


def _unread_names(listing: Listing, owners: Mapping[str, str]) -> set[str]:
    """The names of what could not be read, those that a file has from earlier runs included."""
    files = {str(failure.path.resolve()) for failure in listing.failures if failure.path is not None}
    return {failure.reference for failure in listing.failures} | {
        name for name, owner in owners.items() if owner in files
    }


@dataclass(frozen=True, slots=True)
class _LocalEncodingExecutor:
    """Encodes in this process; only rendering runs in others."""

    page_encoder: PageEncoder
    recognizer: Recognizer | None
    batch_pages: int
    processes: int

    def commits(self, task: IndexTask, writer: StoreWriter, hook: IndexHook) -> Iterator[CommitCounts]:
        """Do the task; yields after each commit."""
        numbered = number_batches(task.listing, task.done, self.batch_pages)
        failed = partial(task.failed, hook)
        max_pixels = self.page_encoder.backbone.page_budget
        pages = render_batches(numbered, failed, self.recognizer, max_pixels, self.processes)
        for commit in group_for_commits(
            self.page_encoder.encode(batch, task.listing, task.stored) for batch in pages
        ):
            writer.append(commit.rows)
            writer.set_vectors(commit.vectors)
            yield CommitCounts(len(commit.rows), len(commit.vectors), commit.prefix_bytes, commit.nbytes)


def _default_processes() -> int:
    return min(8, usable_cores())
