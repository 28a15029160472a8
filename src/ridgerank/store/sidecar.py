"""What lies beside a store's pages: calibrations, and where documents were last found.

Pages hold the names of their documents, not their paths, so that a store can be moved. Rendering a page again
needs its document: for that the paths it was indexed from are kept, as a hint. `rerender.py` compares page
ids, which are digests of the content.

On a local disk these are files in the store's directory. On an object store they are objects under its URL
(`RemoteFolder`), and callers work on a temporary copy.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ridgerank.atomic import replace_text_file
from ridgerank.errors import StoreError
from ridgerank.store import lance_dataset, layout
from ridgerank.store.lance_dataset import RemoteFolder, upload_changes


def calibrations_folder(uri: str) -> Path:
    """The folder of a local store's calibrations; it need not exist yet."""
    root = lance_dataset.local_root(uri)
    if root is None:
        raise StoreError(
            f"the page store at {uri} is not on a local disk: its calibrations are no files; "
            "open them with `open_calibrations` or `edit_calibrations`"
        )
    return root / layout.CALIBRATIONS


def locate_calibrations(uri: str) -> str:
    """The path or URL of a store's calibrations, to be shown."""
    root = lance_dataset.local_root(uri)
    return f"{uri.rstrip('/')}/{layout.CALIBRATIONS}" if root is None else str(root / layout.CALIBRATIONS)


@contextmanager
def open_calibrations(uri: str) -> Iterator[Path]:
    """A folder to read calibrations from: the store's own, or a copy that is removed after the block."""
    if lance_dataset.local_root(uri) is not None:
        yield calibrations_folder(uri)
        return
    with TemporaryDirectory(prefix="ridgerank-") as scratch:
        RemoteFolder(uri, layout.CALIBRATIONS).fetch(Path(scratch), suffix=".safetensors")
        yield Path(scratch)


@contextmanager
def edit_calibrations(uri: str) -> Iterator[Path]:
    """A folder to calibrate in: the store's own, or a copy whose changes are uploaded."""
    if lance_dataset.local_root(uri) is not None:
        yield calibrations_folder(uri)
        return
    with TemporaryDirectory(prefix="ridgerank-") as scratch:
        folder = RemoteFolder(uri, layout.CALIBRATIONS)
        folder.fetch(Path(scratch))
        with upload_changes(folder, Path(scratch)):
            yield Path(scratch)


def remember_sources(uri: str, paths: Mapping[str, Path]) -> None:
    """Add to the paths of documents: name of a document → its file."""
    if not paths:
        return
    with _edit_sources(uri) as sources:
        for name, path in paths.items():
            newest = str(path.resolve())
            sources[name] = [newest, *(older for older in sources.get(name, []) if older != newest)]


def forget_sources(uri: str, names: Iterable[str]) -> None:
    """Drop the paths of documents that are no longer in the store."""
    with _edit_sources(uri) as sources:
        for name in names:
            sources.pop(name, None)


def source_owners(uri: str) -> dict[str, str]:
    """Name of a document → the file that was last indexed under it."""
    with _sources_folder(uri) as folder:
        return {name: paths[0] for name, paths in _read_sources(folder).items() if paths}


def copy_sources(uri: str, target: str) -> None:
    """Give another store of the same pages the paths that this one has."""
    with _sources_folder(uri) as folder:
        sources = _read_sources(folder)
    for name, paths in sources.items():
        for path in reversed(paths):
            remember_sources(target, {name: Path(path)})


def recall_sources(uri: str, names: Iterable[str] | None = None) -> list[Path]:
    """The files that were indexed under these names, or under any, and still exist, each once."""
    with _sources_folder(uri) as folder:
        sources = _read_sources(folder)
    names = sources if names is None else names
    paths = (Path(path) for name in names for path in sources.get(name, []))
    return [path for path in dict.fromkeys(paths) if path.is_file()]


@contextmanager
def _sources_folder(uri: str) -> Iterator[Path]:
    """The store's directory, or a temporary one that holds a copy of its list of sources."""
    root = lance_dataset.local_root(uri)
    if root is not None:
        yield root
        return
    with TemporaryDirectory(prefix="ridgerank-") as scratch:
        RemoteFolder(uri).get(layout.SOURCES, Path(scratch))
        yield Path(scratch)


@contextmanager
def _edit_sources(uri: str) -> Iterator[dict[str, list[str]]]:
    """The list of sources, written back after the block."""
    with _sources_folder(uri) as folder:
        sources = _read_sources(folder)
        yield sources
        with replace_text_file(folder / layout.SOURCES) as file:
            json.dump(sources, file, sort_keys=True)  # ASCII: paths may hold bytes that are not UTF-8
        if lance_dataset.local_root(uri) is None:
            RemoteFolder(uri).put(folder / layout.SOURCES)


def _read_sources(root: Path) -> dict[str, list[str]]:
    path = root / layout.SOURCES
    try:
        content = path.read_text(encoding="utf-8") if path.exists() else "{}"
        sources = json.loads(content)
        if not _is_sources(sources):
            raise ValueError("wanted lists of paths by name")
    except (ValueError, RecursionError, OSError) as error:
        raise StoreError(f"{path} is damaged ({error}); remove it, it is written anew by indexing") from error
    checked: dict[str, list[str]] = sources
    return checked


def _is_sources(sources: object) -> bool:
    return isinstance(sources, dict) and all(
        isinstance(paths, list) and all(isinstance(path, str) for path in paths) for paths in sources.values()
    )
