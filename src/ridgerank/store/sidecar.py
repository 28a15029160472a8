"""What lies beside a store's pages: calibrations, and the documents that pages can be rendered from again.

Pages hold the names of their documents, not their paths, so that a store can be moved. The paths they were
indexed from are kept as a hint: a page is found by its id, a digest of its content, and has its stored text,
which may have come from OCR. Of what lies on an object store callers have a temporary copy.
"""

import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import TypeAlias

from ridgerank.documents.render import PageRef, list_pages, page_from_text, render_pages
from ridgerank.errors import CalibrationError, StoreError
from ridgerank.page_sizing import PixelBudget
from ridgerank.records import Page, document_name
from ridgerank.store import lance_dataset, layout
from ridgerank.store.lance_dataset import RemoteFolder, shorten
from ridgerank.store.page_store import PageStore, StoredPage

logger = logging.getLogger(__name__)


def calibrations_folder(uri: str) -> Path:
    """The folder of a local store's calibrations; it need not exist yet."""
    root = lance_dataset.local_root(uri)
    if root is None:
        raise StoreError(
            f"the page store at {uri} is not on a local disk: its calibrations are no files; "
            "open them with `open_calibrations`"
        )
    return root / layout.CALIBRATIONS


@contextmanager
def open_calibrations(uri: str, *, edit: bool = False) -> Iterator[Path]:
    """The folder of a store's calibrations, or a copy of it; with `edit`, changes of a copy are uploaded."""
    if lance_dataset.local_root(uri) is not None:
        yield calibrations_folder(uri)
        return
    with TemporaryDirectory(prefix="ridgerank-") as scratch:
        folder, remote = Path(scratch), RemoteFolder(uri, layout.CALIBRATIONS)
        for name in remote.names():
            if edit or name.endswith(".safetensors"):
                remote.get(name, folder)
        with upload_changes(remote, folder) if edit else nullcontext():
            yield folder


_UPLOAD_INTERVAL_S = 10.0
"""A killed process loses at most what it wrote in this time."""


@contextmanager
def upload_changes(remote: RemoteFolder, folder: Path) -> Iterator[None]:
    """Upload what changes in a local copy: every few seconds, and at the end, also after an error."""
    uploaded = _stamps(folder)
    done = Event()

    def upload() -> None:
        for path, stamp in sorted(_stamps(folder).items()):
            if uploaded.get(path) != stamp:
                remote.put(path)
                uploaded[path] = stamp

    def upload_regularly() -> None:
        while not done.wait(_UPLOAD_INTERVAL_S):
            with suppress(StoreError):  # tried again, and at the end raised
                upload()

    thread = Thread(target=upload_regularly, name="ridgerank-save", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        upload()


def _stamps(folder: Path) -> dict[Path, tuple[int, int]]:
    """Size and time of each file; scratch files, whose names start with a dot, are left out."""
    files = {path: path.stat() for path in folder.iterdir() if not path.name.startswith(".")}
    return {path: (status.st_size, status.st_mtime_ns) for path, status in files.items()}


_PATHS_KEPT = 8  # of one document: it may lie in another folder every day


def remember_sources(uri: str, paths: Mapping[str, Path]) -> None:
    """Add to the paths of documents: name of a document → its file."""
    sources = _read_sources(uri)
    for name, path in paths.items():
        newest = os.path.realpath(path)
        older = [path for path in sources.get(name, []) if path != newest]
        sources[name] = [newest, *older][:_PATHS_KEPT]
    _write_sources(uri, sources)


def forget_sources(uri: str, names: Iterable[str]) -> None:
    """Drop the paths of documents that are no longer in the store."""
    gone = set(names)
    _write_sources(uri, {name: paths for name, paths in _read_sources(uri).items() if name not in gone})


def source_owners(uri: str) -> dict[str, str]:
    """Name of a document → the file that was last indexed under it."""
    return {name: paths[0] for name, paths in _read_sources(uri).items() if paths}


def recall_sources(uri: str, names: Iterable[str]) -> list[Path]:
    """The files that were indexed under these names and still exist, each once."""
    sources = _read_sources(uri)
    paths = (Path(path) for name in names for path in sources.get(name, []))
    return [path for path in dict.fromkeys(paths) if path.is_file()]


def _write_sources(uri: str, sources: Mapping[str, Sequence[str]]) -> None:
    # ASCII: paths may hold bytes that are not UTF-8.
    lance_dataset.write_file(uri, layout.SOURCES, json.dumps(sources, sort_keys=True).encode("ascii"))


def _read_sources(uri: str) -> dict[str, list[str]]:
    try:
        sources = json.loads(lance_dataset.read_file(uri, layout.SOURCES) or "{}")
        return {str(name): [str(Path(each)) for each in paths] for name, paths in sources.items()}
    except (ValueError, TypeError, AttributeError, RecursionError, OSError) as error:
        raise StoreError(
            f"{layout.SOURCES} of the page store at {uri} is damaged ({error}); "
            "remove it, it is written anew by indexing"
        ) from error


BATCH_PAGES = 4
"""Pages that go through the model at once."""


PageLocation: TypeAlias = tuple[PageRef, str]
"""A page of a document on disk, and its text as it is stored."""


def locate_pages(
    store: PageStore, page_ids: Sequence[str], *, documents: Sequence[Path] = (), processes: int = 1
) -> list[PageLocation]:
    """Where pages can be rendered from, in `documents` or as indexed; pages not found are left out."""
    stored = {page.page_id: page for page in (store.pages(page_ids) if page_ids else [])}
    paths = documents or source_files(store.uri, stored.values())
    listed = list_pages(paths, processes=processes)
    refs = {ref.page_id: ref for ref in listed if isinstance(ref, PageRef) and ref.page_id in stored}
    return [(ref, stored[ref.page_id].text) for ref in refs.values()]


def source_files(uri: str, pages: Iterable[StoredPage]) -> list[Path]:
    """The files that stored pages were indexed from, as far as they still exist."""
    names = {name for page in pages for name in (page.source, *map(document_name, page.references))}
    return recall_sources(uri, sorted(names))


def render_locations(
    locations: Sequence[PageLocation], *, max_pixels: PixelBudget, processes: int = 1
) -> Iterator[Page | str]:
    """Each page in turn with its stored text, or the reason why it cannot be read any more."""
    refs = (ref for ref, _ in locations)
    with closing(render_pages(refs, max_pixels=max_pixels, processes=processes)) as pages:
        for (_, text), page in zip(locations, pages, strict=True):
            yield replace(page, text=text) if isinstance(page, Page) else str(page)


def rerender_pages(
    store: PageStore, page_ids: Sequence[str], *, max_pixels: PixelBudget, documents: Sequence[Path] = ()
) -> Iterator[list[Page]]:
    """Pages of a store, `BATCH_PAGES` at a time, of a text model as stored; an error names missing ones."""
    if store.lineage.page_text is not None:
        for start in range(0, len(page_ids), BATCH_PAGES):
            stored = store.pages(page_ids[start : start + BATCH_PAGES])
            yield [replace(page_from_text(each.text, each.source), page_id=each.page_id) for each in stored]
        return
    locations = locate_pages(store, page_ids, documents=documents)
    located = {ref.page_id for ref, _ in locations}
    missing = store.references([page_id for page_id in page_ids if page_id not in located])
    if missing:
        raise CalibrationError(
            f"{len(missing)} pages have to be looked at again and are not where they were indexed from, or "
            f"have changed: {shorten(missing)}; pass their present paths as `documents`"
        )
    pages = render_locations(locations, max_pixels=max_pixels)
    while rendered := list(islice(pages, BATCH_PAGES)):
        for failure in (page for page in rendered if isinstance(page, str)):
            logger.warning("a page has to be looked at again and is left out: %s", failure)
        yield [page for page in rendered if isinstance(page, Page)]
