"""What lies beside a store's pages on a local disk: calibrations, and where documents were last found.

The pages know their documents by name only, so that a store can be moved. Calibrating has to look at some
pages again: for that the paths they were indexed from are kept, as a hint; whoever follows one compares
page ids, which are made of the content.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from ridgerank.errors import StoreError
from ridgerank.files import replaced_text
from ridgerank.store import dataset, layout


def calibrations_folder(uri: str) -> Path:
    """The folder of a store's calibrations; it need not exist yet."""
    root = dataset.local_root(uri)
    if root is None:
        raise StoreError(
            f"the page store at {uri} is not on a local disk, where calibrations are kept; "
            "copy it to a folder to calibrate and rank"
        )
    return root / layout.CALIBRATIONS


def remember_sources(uri: str, paths: Mapping[str, Path]) -> None:
    """Add to what is known of where documents lie: name of a document → its file."""
    root = dataset.local_root(uri)
    if root is None or not paths:
        return
    known = _known(root)
    for name, path in paths.items():
        found = str(path.resolve())
        known[name] = [found, *(other for other in known.get(name, []) if other != found)]
    with replaced_text(root / layout.SOURCES) as file:
        json.dump(known, file, ensure_ascii=False, sort_keys=True)


def recall_sources(uri: str, names: Iterable[str]) -> list[Path]:
    """The files that were indexed under these names and are still there, each once."""
    root = dataset.local_root(uri)
    known = {} if root is None else _known(root)
    paths = (Path(path) for name in names for path in known.get(name, []))
    return [path for path in dict.fromkeys(paths) if path.is_file()]


def _known(root: Path) -> dict[str, list[str]]:
    path = root / layout.SOURCES
    if not path.exists():
        return {}
    try:
        known: dict[str, list[str]] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise StoreError(f"{path} is damaged ({error}); remove it, it is written anew by indexing") from error
    return known
