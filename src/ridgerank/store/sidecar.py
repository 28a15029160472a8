"""What lies beside a store's pages: calibrations, and where documents were last found.

The pages know their documents by name only, so that a store can be moved. Calibrating has to look at some
pages again: for that the paths they were indexed from are kept, as a hint; whoever follows one compares
page ids, which are made of the content.

On a local disk these are files in the store's directory. On an object store they are objects under its URL,
worked on in a temporary copy (`remote_folder.py`).
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ridgerank.atomic import replacing_text
from ridgerank.errors import StoreError
from ridgerank.store import lance_dataset, layout
from ridgerank.store.remote_folder import RemoteFolder, kept


def calibrations_folder(uri: str) -> Path:
    """The folder of a local store's calibrations; it need not exist yet."""
    root = lance_dataset.local_root(uri)
    if root is None:
        raise StoreError(
            f"the page store at {uri} is not on a local disk: its calibrations are no files; "
            "open them with `reading_calibrations` or `keeping_calibrations`"
        )
    return root / layout.CALIBRATIONS


def calibrations_place(uri: str) -> str:
    """Where a store's calibrations lie, as people write it."""
    root = lance_dataset.local_root(uri)
    return f"{uri.rstrip('/')}/{layout.CALIBRATIONS}" if root is None else str(root / layout.CALIBRATIONS)


@contextmanager
def reading_calibrations(uri: str) -> Iterator[Path]:
    """A folder with the calibrations of a store: its own, or a copy that goes with the block."""
    if lance_dataset.local_root(uri) is not None:
        yield calibrations_folder(uri)
        return
    with TemporaryDirectory(prefix="ridgerank-") as scratch:
        RemoteFolder(uri, layout.CALIBRATIONS).fetch(Path(scratch), suffix=".safetensors")
        yield Path(scratch)


@contextmanager
def keeping_calibrations(uri: str) -> Iterator[Path]:
    """A folder to calibrate in: the store's own, or a copy that is brought back as it changes."""
    if lance_dataset.local_root(uri) is not None:
        yield calibrations_folder(uri)
        return
    with TemporaryDirectory(prefix="ridgerank-") as scratch:
        folder = RemoteFolder(uri, layout.CALIBRATIONS)
        folder.fetch(Path(scratch))
        with kept(folder, Path(scratch)):
            yield Path(scratch)


def remember_sources(uri: str, paths: Mapping[str, Path]) -> None:
    """Add to what is known of where documents lie: name of a document → its file."""
    if not paths:
        return
    with _top(uri) as folder:
        known = _known(folder)
        for name, path in paths.items():
            found = str(path.resolve())
            known[name] = [found, *(other for other in known.get(name, []) if other != found)]
        with replacing_text(folder / layout.SOURCES) as file:
            json.dump(known, file, ensure_ascii=False, sort_keys=True)
        if lance_dataset.local_root(uri) is None:
            RemoteFolder(uri).put(folder / layout.SOURCES)


def recall_sources(uri: str, names: Iterable[str]) -> list[Path]:
    """The files that were indexed under these names and are still there, each once."""
    with _top(uri) as folder:
        known = _known(folder)
    paths = (Path(path) for name in names for path in known.get(name, []))
    return [path for path in dict.fromkeys(paths) if path.is_file()]


@contextmanager
def _top(uri: str) -> Iterator[Path]:
    """The store's directory, or a temporary one that holds a copy of its list of sources."""
    root = lance_dataset.local_root(uri)
    if root is not None:
        yield root
        return
    with TemporaryDirectory(prefix="ridgerank-") as scratch:
        RemoteFolder(uri).get(layout.SOURCES, Path(scratch))
        yield Path(scratch)


def _known(root: Path) -> dict[str, list[str]]:
    path = root / layout.SOURCES
    if not path.exists():
        return {}
    try:
        known: dict[str, list[str]] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise StoreError(f"{path} is damaged ({error}); remove it, it is written anew by indexing") from error
    return known
