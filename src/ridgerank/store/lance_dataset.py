"""The Lance dataset of a page store: its schema, opening it, and Lance's errors as `StoreError`.

Also digests of the files in which Lance lists versions and removed rows, and small files beside a dataset.

The prompt before the page is the same for every page, and a causal model reads it before the page: its keys
and values do not depend on the page. They are kept once beside a store, in float32: the first positions draw
the most attention.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote, urlsplit

import lance
import numpy as np
import pyarrow as pa
from lance.file import LanceFileSession
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ridgerank.atomic import replace_file, replace_text_file
from ridgerank.errors import ArtifactError, StoreError
from ridgerank.lineage import Lineage
from ridgerank.store import layout
from ridgerank.store.layout import SharedPositions

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


_INDEX_CACHE_BYTES = 512 << 20
_METADATA_CACHE_BYTES = 128 << 20
"""What Lance may keep of a store in memory; its defaults are gigabytes."""


def local_root(uri: str) -> Path | None:
    """The directory behind `uri`, None if it is another kind of storage."""
    if "://" not in uri:
        # Lance reads `~` as the home folder; so does what lies beside its dataset.
        return Path(uri).expanduser() if Path(uri).parts[:1] == ("~",) else Path(uri)
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def schema(lineage: Lineage, shared_digest: str | None = None) -> pa.Schema:
    """Define the columns of a new store, made with `lineage`, its shared positions beside it."""
    metadata = {layout.FORMAT_KEY: str(layout.FORMAT), layout.LINEAGE_KEY: lineage.to_json()}
    if shared_digest is not None:
        metadata[layout.SHARED_KEY] = shared_digest
    return pa.schema(
        [
            pa.field(layout.PAGE_ID, pa.string(), nullable=False),
            pa.field(layout.REFERENCES, pa.list_(pa.string())),
            pa.field(layout.SOURCE, pa.string()),
            pa.field(layout.TEXT, pa.string()),
            pa.field(layout.THUMBNAIL, pa.binary()),
            pa.field(layout.POSITIONS, pa.int32()),
            pa.field(layout.CHECKSUM, pa.binary(layout.CHECKSUM_BYTES)),
            pa.field(layout.NAMES_CHECKSUM, pa.binary(layout.CHECKSUM_BYTES)),
            pa.field(layout.PREFIX, pa.large_binary(), metadata={"lance-encoding:blob": "true"}),
        ],
        metadata=metadata,
    )


def open_dataset(uri: str) -> Any | None:  # noqa: ANN401 (Lance is untyped)
    """Open the dataset at `uri`; None if there is none, a `StoreError` where it is damaged."""
    root = local_root(uri)
    if root is not None:
        require_seal(root)
    with wrap_errors(f"opening the page store at {uri}"):
        try:
            return lance.dataset(
                uri,
                index_cache_size_bytes=_INDEX_CACHE_BYTES,
                metadata_cache_size_bytes=_METADATA_CACHE_BYTES,
            )
        except (ValueError, OSError) as error:
            if "not found" in str(error).lower():
                return None
            raise


def read_lineage(dataset: Any, uri: str) -> Lineage:  # noqa: ANN401
    """Read the lineage of a store; a dataset of another kind or format is refused."""
    with wrap_errors(f"reading what the page store at {uri} was made with"):
        metadata = {key.decode(): value.decode() for key, value in (dataset.schema.metadata or {}).items()}
    stored_format = metadata.get(layout.FORMAT_KEY)
    if stored_format is None:
        raise StoreError(f"{uri} is a Lance dataset but not a page store; name another place")
    if stored_format != str(layout.FORMAT):
        raise ArtifactError(
            f"the page store at {uri} has format {stored_format}, expected {layout.FORMAT}: "
            "read it with the ridgerank that wrote it, or index the pages again"
        )
    missing = [name for name in layout.COLUMNS if name not in dataset.schema.names]
    if missing:
        raise StoreError(
            f"the page store at {uri} has no {shorten(missing)}: damaged; restore it from a copy"
        )
    return Lineage.from_json(metadata.get(layout.LINEAGE_KEY, ""))


def read_shared_digest(dataset: Any) -> str | None:  # noqa: ANN401
    """The digest of a store's shared positions, None if its pages are stored with them."""
    digest = (dataset.schema.metadata or {}).get(layout.SHARED_KEY.encode())
    return None if digest is None else digest.decode()


def shorten(names: Sequence[str], *, shown: int = 5) -> str:
    """The first few of `names`, and how many more there are."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


@contextmanager
def wrap_errors(action: str) -> Iterator[None]:
    """Turn what Lance and the file system raise into a `StoreError` that names the action."""
    try:
        yield
    except (OSError, ValueError, RuntimeError, pa.ArrowException) as error:
        raise StoreError(f"{action} failed: {error}") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        # Lance gave up on bytes that it had not expected.
        reason = str(error).partition("\n")[0][:200]
        raise StoreError(
            f"{action} failed: the store is damaged ({reason}); restore it from a copy"
        ) from error


class RemoteFolder:
    """The objects right under a URL, by name."""

    def __init__(self, uri: str, name: str = "") -> None:
        self.url = "/".join(part for part in (uri.rstrip("/"), name) if part)
        with wrap_errors(f"opening {self.url}"):
            self._session = LanceFileSession(self.url)

    def names(self) -> list[str]:
        """Sorted; empty where there is no such folder."""
        with wrap_errors(f"listing {self.url}"):
            return sorted(name for name in self._session.list() if "/" not in name)

    def get(self, name: str, folder: Path) -> bool:
        """Copy one object into a local folder; False where there is no such object."""
        with wrap_errors(f"reading {self.url}/{name}"):
            if not self._session.contains(name):
                return False
            self._session.download_file(name, str(folder / name))
            return True

    def put(self, path: Path) -> None:
        """Upload a local file, replacing the object of its name: whole, or not at all."""
        with wrap_errors(f"writing {self.url}/{path.name}"):
            self._session.upload_file(str(path), path.name)

    def fetch(self, folder: Path, *, suffix: str = "") -> None:
        """Copy everything whose name ends in `suffix` into a local folder."""
        for name in self.names():
            if name.endswith(suffix):
                self.get(name, folder)


def write_shared(uri: str, shared: SharedPositions) -> str:
    """Write shared positions beside a store that is to be made; return the digest its dataset records."""
    content = save({"keys": shared[0], "values": shared[1]})
    root = local_root(uri)
    if root is not None:
        with replace_file(root / layout.SHARED) as scratch:
            scratch.write_bytes(content)
    else:
        with TemporaryDirectory(prefix="ridgerank-") as folder:
            path = Path(folder) / layout.SHARED
            path.write_bytes(content)
            RemoteFolder(uri).put(path)
    return _digest(content)


def read_shared(uri: str, digest: str) -> SharedPositions:
    """Read shared positions back; a file that is missing or has another digest is refused."""
    content = _read_shared_file(uri)
    if content is None or _digest(content) != digest:
        state = "missing" if content is None else "damaged"
        raise StoreError(
            f"{layout.SHARED} of the page store at {uri} is {state}: without it no page can be read; "
            "restore it from a copy, or index the documents into a new store"
        )
    try:
        tensors = load(content)
    except SafetensorError as error:
        raise StoreError(f"{layout.SHARED} of the page store at {uri} cannot be read: {error}") from error
    # A copy: memory of `bytes` is read-only, which torch warns of.
    return np.stack([tensors["keys"], tensors["values"]])


def _read_shared_file(uri: str) -> bytes | None:
    root = local_root(uri)
    if root is not None:
        path = root / layout.SHARED
        return path.read_bytes() if path.is_file() else None
    with TemporaryDirectory(prefix="ridgerank-") as folder:
        if not RemoteFolder(uri).get(layout.SHARED, Path(folder)):
            return None
        return (Path(folder) / layout.SHARED).read_bytes()
