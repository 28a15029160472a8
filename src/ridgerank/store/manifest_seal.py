"""Digests of the files in which Lance says what a store holds: its versions, and which rows were removed.

Lance keeps no checksum of them, and a changed bit there may hide a page or change a lineage. A writer notes
their digests in one small file beside the dataset. Readers compare the newest version; `find_damage` compares
all. A version whose writer was killed before it noted the digest is read unverified, as are stores of older
releases and stores that do not lie on a local disk.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from ridgerank.atomic import replace_text_file
from ridgerank.errors import StoreError
from ridgerank.store import layout

_PATTERNS = ("_versions/*.manifest", "_deletions/*")
_HALF = 1 << 63
"""Lance numbers versions downwards from 2^64 in the names of their files, formerly upwards from 1."""


def seal_store(root: Path) -> None:
    """Note the digest of every file that has none yet; forget files that are gone."""
    try:
        known = _read_seals(root)
    except StoreError:
        known = {}
    files = [path for pattern in _PATTERNS for path in sorted(root.glob(pattern))]
    seals = {_name(root, path): known.get(_name(root, path)) or _digest(path.read_bytes()) for path in files}
    if seals != known:
        with replace_text_file(root / layout.SEALS) as file:
            json.dump({"files": seals, "digest": _digest_of_seals(seals)}, file, sort_keys=True)


def require_seal(root: Path) -> None:
    """Refuse a store whose newest version is not as it was written."""
    manifests = {int(path.stem): path for path in root.glob("_versions/*.manifest") if path.stem.isdecimal()}
    if not manifests:
        return
    newest = manifests[min(manifests) if max(manifests) >= _HALF else max(manifests)]
    try:
        seals = _read_seals(root)
        content = newest.read_bytes()
    except (StoreError, FileNotFoundError):  # `find_damage` names a damaged list; a version may be swept now
        return
    if seals.get(_name(root, newest), _digest(content)) != _digest(content):
        raise StoreError(
            f"the page store at {root} is damaged: {_name(root, newest)} is not as it was written; "
            "restore it from a copy, or index the documents into a new store"
        )


def find_broken_seals(root: Path) -> Iterator[str]:
    """The files that are missing or not as they were written, by name."""
    try:
        seals = _read_seals(root)
    except StoreError:
        yield layout.SEALS
        return
    for name, digest in seals.items():
        path = root / name
        if not path.is_file() or _digest(path.read_bytes()) != digest:
            yield name


def _read_seals(root: Path) -> dict[str, str]:
    path = root / layout.SEALS
    if not path.exists():
        return {}
    try:
        stored = json.loads(path.read_bytes())
        seals: dict[str, str] = stored["files"]
        if stored["digest"] != _digest_of_seals(seals):
            raise ValueError("another digest")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StoreError(f"{path} is damaged ({error}); remove it, the next writer makes it anew") from error
    return seals


def _name(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()


def _digest_of_seals(seals: dict[str, str]) -> str:
    return _digest(json.dumps(seals, sort_keys=True).encode())


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=32).hexdigest()
