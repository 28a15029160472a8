"""Documents into a store: list, skip what is there, render, encode, compress, commit. Interrupt it at will.

What makes a second run give the very store an uninterrupted one gives: pages go through the model in
batches cut from the whole list, never from what happens to be left of it, and a batch is committed whole.
"""

import io
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Protocol

from PIL.Image import Image

from ridgerank.backbones.base import Backbone
from ridgerank.documents.outcomes import Failure, PassedOver
from ridgerank.documents.pages import PageRef, list_pages, render_pages
from ridgerank.records import Page
from ridgerank.store.compress import compress
from ridgerank.store.keep import Keep
from ridgerank.store.layout import block_of
from ridgerank.store.origin import default_exit_layer, lineage_of
from ridgerank.store.rows import PageRow, StoredPage
from ridgerank.store.write import StoreWriter

_COMMIT_SECONDS = 15.0
_COMMIT_BYTES = 128 << 20
_COMMIT_PAGES = 64
"""Encoded pages wait for a commit until one of these is reached: what a kill can cost, at most."""
_THUMBNAIL_PIXELS = 320


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """What listing has found."""

    pages: int
    """Different pages under the paths."""
    stored: int
    """Of these, how many the store has already."""


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What indexing has done."""

    pages: int
    """Different pages under the paths."""
    added: int
    skipped: int
    """Pages the store had already."""
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


@dataclass(slots=True)
class _Listing:
    """The pages under the paths, by id, each with all its names."""

    refs: dict[str, PageRef] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    passed_over: int = 0

    @property
    def copies(self) -> int:
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
) -> IndexReport:
    """Bring every page under `paths` into the store at `uri`.

    Pages stored already are neither rendered nor encoded. A name that now stands for another content
    moves to it. With `prune` the store ends up with just these pages, except for those of files that
    could not be read this time.
    """
    start = time.perf_counter()
    keep = keep or Keep()
    exit_layer = default_exit_layer(backbone.geometry.layers) if exit_layer is None else exit_layer
    backbone.require_layers(join_layer, exit_layer)
    processes = _processes() if processes is None else processes
    lineage = lineage_of(backbone, exit_layer=exit_layer, join_layer=join_layer, keep=keep)
    with StoreWriter(uri, lineage) as writer:
        listing = _list(paths, watcher, processes=processes)
        stored = writer.page_ids()
        skipped = sum(page_id in stored for page_id in listing.refs)
        watcher.planned(IndexPlan(len(listing.refs), skipped))
        added = nbytes = 0
        batches = _batches(listing, stored, batch_pages or _batch_pages(backbone))
        pages = _rendered(batches, listing, watcher, max_pixels=backbone.max_pixels, processes=processes)
        encoded = (_encode(backbone, batch, listing, exit_layer, join_layer, keep) for batch in pages)
        for rows in _commits(encoded):
            writer.append(rows)
            size = sum(block_of(row.prefix).nbytes for row in rows)
            watcher.committed(len(rows), size)
            added, nbytes = added + len(rows), nbytes + size
        removed = _settle_names(writer, listing, prune=prune)
    return IndexReport(
        pages=len(listing.refs),
        added=added,
        skipped=skipped,
        copies=listing.copies,
        removed=removed,
        passed_over=listing.passed_over,
        prefix_bytes=nbytes,
        seconds=time.perf_counter() - start,
        failures=tuple(listing.failures),
    )


def _list(paths: Iterable[str | Path], watcher: Watcher, *, processes: int) -> _Listing:
    listing = _Listing()
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


def _batches(listing: _Listing, stored: frozenset[str], size: int) -> Iterator[tuple[int, PageRef]]:
    """The pages to encode, each with the number of its batch in the whole list."""
    for place, (page_id, ref) in enumerate(listing.refs.items()):
        if page_id not in stored:
            yield place // size, ref


def _rendered(
    numbered: Iterable[tuple[int, PageRef]],
    listing: _Listing,
    watcher: Watcher,
    *,
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
        for read in render_pages(refs(), max_pixels=max_pixels, processes=processes):
            if isinstance(read, Page):
                yield read
            elif isinstance(read, Failure):
                listing.failures.append(read)
                watcher.failed(read)

    for _, batch in groupby(pages(), key=lambda page: batch_of.pop(page.page_id)):
        yield list(batch)


def _encode(
    backbone: Backbone, pages: Sequence[Page], listing: _Listing, exit_layer: int, join_layer: int, keep: Keep
) -> list[PageRow]:
    prefixes = backbone.encode([page.image for page in pages], exit_layer=exit_layer, join_layer=join_layer)
    return [
        PageRow(
            page=StoredPage(
                page_id=page.page_id,
                references=tuple(listing.names[page.page_id]),
                source=listing.refs[page.page_id].source.name,
                text=page.text,
                thumbnail=_thumbnail(page.image),
            ),
            prefix=compress(prefix, page.image, keep),
        )
        for page, prefix in zip(pages, prefixes, strict=True)
    ]


def _commits(batches: Iterable[list[PageRow]]) -> Iterator[list[PageRow]]:
    """Whole batches gathered until a commit is worth its while."""
    waiting: list[PageRow] = []
    nbytes, since = 0, time.monotonic()
    for batch in batches:
        waiting += batch
        nbytes += sum(block_of(row.prefix).nbytes for row in batch)
        late = time.monotonic() - since > _COMMIT_SECONDS
        if late or nbytes > _COMMIT_BYTES or len(waiting) >= _COMMIT_PAGES:
            yield waiting
            waiting, nbytes, since = [], 0, time.monotonic()
    if waiting:
        yield waiting


def _settle_names(writer: StoreWriter, listing: _Listing, *, prune: bool) -> int:
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


def _batch_pages(backbone: Backbone) -> int:
    return 8 if backbone.device.type == "cuda" else 4
