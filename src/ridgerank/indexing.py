"""Documents into a store: list, skip what is there, render, encode, compress, commit. Interrupt it at will.

A retriever's vectors are made of the same rendered image, where one is given; a page that has its prefix but
not its vectors is rendered again and gets them.

What makes a second run give the very store an uninterrupted one gives: pages go through the model in
batches cut from the whole list, never from what happens to be left of it, and a batch is committed whole.
"""

import io
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.prefix import Prefix
from ridgerank.documents.ocr import Recognizer, lacks_text, recognize
from ridgerank.documents.outcomes import Failure, PassedOver
from ridgerank.documents.pages import PageRef, list_pages, render_pages
from ridgerank.lineage import Lineage
from ridgerank.records import Page
from ridgerank.store.beside import remember_sources
from ridgerank.store.compress import compress
from ridgerank.store.keep import Keep
from ridgerank.store.layout import block_of
from ridgerank.store.origin import default_exit_layer, lineage_of
from ridgerank.store.read import PageStore
from ridgerank.store.rows import PageRow, StoredPage
from ridgerank.store.vectors import PageEmbedder, VectorOrigin
from ridgerank.store.write import StoreWriter

_COMMIT_SECONDS = 15.0
_COMMIT_BYTES = 128 << 20
_COMMIT_PAGES = 64
"""Encoded pages wait for a commit until one of these is reached: what a kill can cost, at most."""
_THUMBNAIL_PIXELS = 320
INDEXED_FROM = 10_000
"""From so many pages on, a store gets indices: over its page ids and names, to look pages up instead of
listing all of them, and over its vectors, fewer of which are searched exactly, block by block."""


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """What listing has found."""

    pages: int
    """Different pages under the paths."""
    stored: int
    """Of these, how many the store has already, vectors included where a retriever is given."""


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What indexing has done."""

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
    """Further names of the same content: stored once, found by every name."""
    removed: int
    passed_over: int
    """Files in folders that are neither PDF nor image."""
    prefix_bytes: int
    """Bytes of the prefixes added."""
    seconds: float
    failures: tuple[Failure, ...]


class Watcher(Protocol):
    """Someone who looks on while pages are indexed."""

    def planned(self, plan: IndexPlan) -> None:
        """All paths are listed."""

    def committed(self, pages: int, nbytes: int) -> None:
        """So many pages more are safe in the store."""

    def failed(self, failure: Failure) -> None:
        """A file or page could not be read; the rest goes on."""


class Onlooker(Protocol):
    """Someone who wants to see pages at full depth while they are encoded anyway."""

    def listed(self, refs: Mapping[str, PageRef], stored: frozenset[str]) -> None:
        """Every page under the paths, by id, and the ids of those that will not be encoded."""

    def wants(self, page_id: str) -> bool:
        """Whether to show this page: encoding it to full depth costs the layers above the exit layer."""

    def look(self, page_ids: Sequence[str], prefixes: Sequence[Prefix]) -> None:
        """Pages that were wanted, all layers, uncompressed; not yet committed to the store."""


@dataclass(slots=True)
class Listing:
    """The pages under the paths, by id, each with all its names."""

    refs: dict[str, PageRef] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    passed_over: int = 0

    @property
    def copies(self) -> int:
        """Further names of the same content."""
        return sum(len(names) - 1 for names in self.names.values())


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
    onlooker: Onlooker | None = None,
) -> IndexReport:
    """Bring every page under `paths` into the store at `uri`.

    Pages stored already are neither rendered nor encoded. A name that now stands for another content
    moves to it. With `prune` the store ends up with just these pages, except for those of files that
    could not be read this time. With a `recognizer` pages without a text layer are read off their image.
    With an `embedder` every page gets a retriever's vectors, too, and a large store an index over them.
    """
    keep = keep or Keep()
    exit_layer = default_exit_layer(backbone.geometry.layers) if exit_layer is None else exit_layer
    backbone.require_layers(join_layer, exit_layer)
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
class Task:
    """What is left to do once the documents are listed."""

    listing: "Listing"
    stored: frozenset[str]
    """Pages that have their prefix."""
    done: frozenset[str]
    """Pages that have all they need."""

    def failed(self, watcher: Watcher, failure: Failure) -> None:
        """Note a page that could not be read."""
        self.listing.failures.append(failure)
        watcher.failed(failure)


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
    onlooker: Onlooker | None = None,
    prune: bool = False,
    processes: int = 1,
) -> IndexReport:
    """List documents, have the pages that are missing read by `work`, settle names and indices.

    To a model that `reads_text` pages without any are blank: the report then names them.
    """
    start = time.perf_counter()
    with StoreWriter(uri, lineage) as writer:
        lacking = frozenset() if origin is None else writer.open_vectors(origin)
        listing = _list(paths, watcher, processes=processes)
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
        removed = _settle_names(writer, listing, prune=prune)
        bare = _bare(writer, origin)
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
        without_text=_without_text(uri) if reads_text else (),
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

    reader: "PageReader"
    recognizer: Recognizer | None
    batch_pages: int
    processes: int

    def commits(self, task: Task, writer: StoreWriter, watcher: Watcher) -> Iterator[Committed]:
        """Do the task, telling of each commit when it is made."""
        numbered = batches(task.listing, task.done, self.batch_pages)
        failed = partial(task.failed, watcher)
        max_pixels = self.reader.backbone.max_pixels
        pages = rendered(numbered, failed, self.recognizer, max_pixels, self.processes)
        for made in _commits(self.reader.read(batch, task.listing, task.stored) for batch in pages):
            writer.append(made.rows)
            writer.set_vectors(made.vectors)
            yield Committed(len(made.rows), len(made.vectors), made.prefix_bytes, made.nbytes)


def _list(paths: Iterable[str | Path], watcher: Watcher, *, processes: int) -> Listing:
    listing = Listing()
    for found in list_pages(paths, processes=min(processes, 2)):
        match found:
            case PageRef():
                listing.refs.setdefault(found.page_id, found)
                listing.names.setdefault(found.page_id, []).append(found.reference)
            case Failure():
                listing.failures.append(found)
                watcher.failed(found)
            case PassedOver():
                listing.passed_over += 1
    return listing


def batches(listing: Listing, done: frozenset[str], size: int) -> Iterator[tuple[int, PageRef]]:
    """The pages to read, each with the number of its batch in the whole list."""
    for place, (page_id, ref) in enumerate(listing.refs.items()):
        if page_id not in done:
            yield place // size, ref


def rendered(
    numbered: Iterable[tuple[int, PageRef]],
    failed: Callable[[Failure], None],
    recognizer: Recognizer | None,
    max_pixels: int,
    processes: int,
) -> Iterator[list[Page]]:
    """Pages with their images, batch by batch; a page that cannot be rendered is left out and said."""
    batch_of: dict[str, int] = {}

    def refs() -> Iterator[PageRef]:
        for number, ref in numbered:
            batch_of[ref.page_id] = number
            yield ref

    def pages() -> Iterator[Page]:
        images = render_pages(refs(), max_pixels=max_pixels, processes=processes)
        for read in images if recognizer is None else recognize(images, recognizer):
            if isinstance(read, Page):
                yield read
            elif isinstance(read, Failure):
                failed(read)

    for _, batch in groupby(pages(), key=lambda page: batch_of.pop(page.page_id)):
        yield list(batch)


@dataclass(frozen=True, slots=True)
class Made:
    """What was made of some pages: rows for new ones, vectors for those stored before."""

    rows: list[PageRow] = field(default_factory=list)
    vectors: dict[str, NDArray[np.float16]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows) + len(self.vectors)

    def __add__(self, other: "Made") -> "Made":
        return Made([*self.rows, *other.rows], {**self.vectors, **other.vectors})

    @property
    def prefix_bytes(self) -> int:
        """Bytes of the prefixes."""
        return sum(block_of(row.prefix).nbytes for row in self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes of prefixes and vectors."""
        own = [row.page.vectors for row in self.rows if row.page.vectors is not None]
        return self.prefix_bytes + sum(vectors.nbytes for vectors in (*own, *self.vectors.values()))


@dataclass(frozen=True, slots=True)
class PageReader:
    """The models that look at pages, and their settings."""

    backbone: Backbone
    embedder: PageEmbedder | None
    onlooker: Onlooker | None
    exit_layer: int
    join_layer: int
    keep: Keep

    def read(self, pages: Sequence[Page], listing: Listing, stored: frozenset[str]) -> Made:
        """One batch of rendered pages through both models; a stored page needs its vectors only."""
        vectors: dict[str, NDArray[np.float16]] = {}
        if self.embedder is not None:
            embedded = self.embedder.embed_pages([page.image for page in pages])
            vectors = dict(zip((page.page_id for page in pages), embedded, strict=True))
        new = [page for page in pages if page.page_id not in stored]
        prefixes = self._encode(new)
        rows = [
            PageRow(
                page=StoredPage(
                    page_id=page.page_id,
                    references=tuple(listing.names[page.page_id]),
                    source=listing.refs[page.page_id].source.name,
                    text=page.text,
                    thumbnail=_thumbnail(page.image),
                    vectors=vectors.pop(page.page_id, None),
                ),
                prefix=compress(prefix, page.image, self.keep),
            )
            for page, prefix in zip(new, prefixes, strict=True)
        ]
        return Made(rows, vectors)

    def _encode(self, pages: Sequence[Page]) -> list[Prefix]:
        """The layers to store of each page; a page somebody wants to look at is read to its full depth."""
        contents = [self.backbone.content(page) for page in pages]
        looked_at = [place for place, page in enumerate(pages) if self._wanted(page)]
        if self.onlooker is None or not looked_at:
            return self.backbone.encode(contents, exit_layer=self.exit_layer, join_layer=self.join_layer)
        # The layers below the exit are computed just as without anyone looking on: the stored bytes agree.
        whole = self.backbone.encode(contents, exit_layer=self.backbone.geometry.layers)
        self.onlooker.look(
            [pages[place].page_id for place in looked_at], [whole[place] for place in looked_at]
        )
        return [prefix.layers(self.join_layer, self.exit_layer) for prefix in whole]

    def _wanted(self, page: Page) -> bool:
        return self.onlooker is not None and self.onlooker.wants(page.page_id)


def _commits(batches: Iterable[Made]) -> Iterator[Made]:
    """Whole batches gathered until a commit is worth its while."""
    waiting, since = Made(), time.monotonic()
    for batch in batches:
        waiting += batch
        late = time.monotonic() - since > _COMMIT_SECONDS
        if late or waiting.nbytes > _COMMIT_BYTES or len(waiting) >= _COMMIT_PAGES:
            yield waiting
            waiting, since = Made(), time.monotonic()
    if len(waiting):
        yield waiting


def _bare(writer: StoreWriter, origin: VectorOrigin | None) -> tuple[str, ...]:
    """Name the stored pages that have no vectors of this retriever."""
    if origin is None:
        return ()
    lacking = writer.open_vectors(origin)
    names = writer.references() if lacking else {}
    return tuple(sorted((*names[page_id], page_id)[0] for page_id in lacking))


def _without_text(uri: str) -> tuple[str, ...]:
    """Name the stored pages that have next to no text, those of earlier runs included."""
    with PageStore.open(uri) as store:
        blank = [page_id for page_id, text in store.texts().items() if lacks_text(text)]
        return tuple(sorted(store.reference(page_id) for page_id in blank))


def _settle_names(writer: StoreWriter, listing: Listing, *, prune: bool) -> int:
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


def _thumbnail(image: Image) -> bytes:
    small = image.copy()
    small.thumbnail((_THUMBNAIL_PIXELS, _THUMBNAIL_PIXELS))
    encoded = io.BytesIO()
    small.save(encoded, "WEBP", quality=70, method=4)
    return encoded.getvalue()


def _processes() -> int:
    return max(1, min(8, (os.cpu_count() or 1)))


def default_batch_pages(backbone: Backbone) -> int:
    """Pages that go through a model at once; the same anywhere: the last bits of prefixes depend on it."""
    return 8 if backbone.device.type == "cuda" else 4
