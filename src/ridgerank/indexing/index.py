"""Documents into a store: list, skip what is there, render, encode, compress, commit. Interrupt it at will.

A retriever's vectors are made of the same rendered image, where one is given; a page that has its prefix but
not its vectors is rendered again and gets them.

What makes a second run give the very store an uninterrupted one gives: pages go through the model in
batches cut from the whole list, never from what happens to be left of it, and a batch is committed whole.
"""

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from ridgerank.backbones.base import Backbone
from ridgerank.documents.ocr import Recognizer
from ridgerank.indexing.encode import PageReader, default_batch_pages, gathered
from ridgerank.indexing.finalize import settle_names, without_text, without_vectors
from ridgerank.indexing.listing import Task, batches, list_documents, rendered
from ridgerank.indexing.progress import EncodeHook, IndexPlan, IndexReport, Watcher
from ridgerank.lineage import Lineage
from ridgerank.store.model_lineage import default_exit_layer, lineage_of
from ridgerank.store.pruning import Keep
from ridgerank.store.sidecar import remember_sources
from ridgerank.store.store_writer import StoreWriter
from ridgerank.store.vector_columns import PageEmbedder, VectorOrigin

INDEXED_FROM = 10_000
"""From so many pages on, a store gets indices: over its page ids and names, to look pages up instead of
listing all of them, and over its vectors, fewer of which are searched exactly, block by block."""


def index_documents(
    paths: Iterable[str | Path],
    uri: str,
    backbone: Backbone,
    *,
    watcher: Watcher,
    exit_layer: int | None = None,
    join_layer: int = 0,
    keep: Keep | None = None,
    prune: bool = False,
    processes: int | None = None,
    batch_pages: int | None = None,
    recognizer: Recognizer | None = None,
    embedder: PageEmbedder | None = None,
    onlooker: EncodeHook | None = None,
) -> IndexReport:
    """Bring every page under `paths` into the store at `uri`.

    Pages stored already are neither rendered nor encoded. A name that now stands for another content
    moves to it. With `prune` the store ends up with just these pages, except for those of files that
    could not be read this time. With a `recognizer` pages without a text layer are read off their image.
    With an `embedder` every page gets a retriever's vectors, too, and a large store an index over them.
    """
    keep = keep or Keep()
    exit_layer = default_exit_layer(backbone.geometry.layers) if exit_layer is None else exit_layer
    backbone.geometry.require_layers(join_layer, exit_layer)
    processes = _processes() if processes is None else processes
    return run_index(
        paths,
        uri,
        lineage_of(backbone, exit_layer=exit_layer, join_layer=join_layer, keep=keep),
        _Here(
            PageReader(backbone, embedder, onlooker, exit_layer, join_layer, keep),
            recognizer,
            batch_pages or default_batch_pages(backbone),
            processes,
        ),
        watcher=watcher,
        origin=None if embedder is None else embedder.origin,
        reads_text=backbone.reads_text,
        onlooker=onlooker,
        prune=prune,
        processes=processes,
    )


@dataclass(frozen=True, slots=True)
class Committed:
    """Pages that are safe in the store."""

    added: int
    embedded: int
    """Pages stored before, that got vectors."""
    prefix_bytes: int
    nbytes: int
    """Prefixes and vectors."""


class Work(Protocol):
    """Reads the pages of a task and commits them: here, or on other machines."""

    def commits(self, task: Task, writer: StoreWriter, watcher: Watcher) -> Iterator[Committed]:
        """Do the task, telling of each commit when it is made."""


def run_index(
    paths: Iterable[str | Path],
    uri: str,
    lineage: Lineage,
    work: Work,
    *,
    watcher: Watcher,
    origin: VectorOrigin | None,
    reads_text: bool,
    onlooker: EncodeHook | None = None,
    prune: bool = False,
    processes: int = 1,
) -> IndexReport:
    """List documents, have the pages that are missing read by `work`, settle names and indices.

    To a model that `reads_text` pages without any are blank: the report then names them.
    """
    start = time.perf_counter()
    with StoreWriter(uri, lineage) as writer:
        lacking = frozenset() if origin is None else writer.open_vectors(origin)
        listing = list_documents(paths, watcher, processes=processes)
        stored = writer.page_ids()
        remember_sources(uri, {ref.source.name: ref.source.path for ref in listing.refs.values()})
        if onlooker is not None:
            onlooker.listed(listing.refs, stored)
        skipped = sum(page_id in stored for page_id in listing.refs)
        done = stored - lacking
        watcher.planned(IndexPlan(len(listing.refs), sum(page_id in done for page_id in listing.refs)))
        added = embedded = nbytes = 0
        for made in work.commits(Task(listing, stored, done), writer, watcher):
            watcher.committed(made.added + made.embedded, made.nbytes)
            added, embedded = added + made.added, embedded + made.embedded
            nbytes += made.prefix_bytes
        removed = settle_names(writer, listing, prune=prune)
        bare = without_vectors(writer, origin)
        if len(writer.page_ids()) >= INDEXED_FROM:
            writer.index_pages()
            if origin is not None and (added or embedded):
                writer.index_vectors()
    return IndexReport(
        pages=len(listing.refs),
        added=added,
        skipped=skipped,
        embedded=embedded,
        without_vectors=bare,
        without_text=without_text(uri) if reads_text else (),
        copies=listing.copies,
        removed=removed,
        passed_over=listing.passed_over,
        prefix_bytes=nbytes,
        seconds=time.perf_counter() - start,
        failures=tuple(listing.failures),
    )


@dataclass(frozen=True, slots=True)
class _Here:
    """Everything in this process, but for rendering."""

    reader: PageReader
    recognizer: Recognizer | None
    batch_pages: int
    processes: int

    def commits(self, task: Task, writer: StoreWriter, watcher: Watcher) -> Iterator[Committed]:
        """Do the task, telling of each commit when it is made."""
        numbered = batches(task.listing, task.done, self.batch_pages)
        failed = partial(task.failed, watcher)
        max_pixels = self.reader.backbone.max_pixels
        pages = rendered(numbered, failed, self.recognizer, max_pixels, self.processes)
        for made in gathered(self.reader.read(batch, task.listing, task.stored) for batch in pages):
            writer.append(made.rows)
            writer.set_vectors(made.vectors)
            yield Committed(len(made.rows), len(made.vectors), made.prefix_bytes, made.nbytes)


def _processes() -> int:
    return max(1, min(8, (os.cpu_count() or 1)))
