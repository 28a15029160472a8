"""The Lance dataset of a page store and the files beside it; Lance's errors become `StoreError`."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote, urlsplit
from weakref import WeakValueDictionary

import lance
import pyarrow as pa
from lance.file import LanceFileSession

from ridgerank.atomic import replace_file
from ridgerank.errors import ArtifactError, StoreError
from ridgerank.lineage import Lineage
from ridgerank.store import layout
from ridgerank.store.layout import Basis

_BASES: WeakValueDictionary[str, Basis] = WeakValueDictionary()
_INDEX_CACHE_BYTES = 512 << 20
_METADATA_CACHE_BYTES = 128 << 20
"""What Lance may keep of a store in memory; its defaults are gigabytes."""


def local_root(uri: str) -> Path | None:
    """The directory behind `uri`, None if it is another kind of storage."""
    if "://" not in uri:
        # Lance reads `~` as the home folder; so does what lies beside its dataset.
        return Path(os.path.expanduser(uri)) if Path(uri).parts[:1] == ("~",) else Path(uri)  # noqa: PTH111
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def schema(lineage: Lineage) -> pa.Schema:
    """Define the columns of a new store, made with `lineage`."""
    metadata = {layout.FORMAT_KEY: str(layout.FORMAT), layout.LINEAGE_KEY: lineage.to_json()}
    return pa.schema(
        [
            pa.field(layout.PAGE_ID, pa.string(), nullable=False),
            pa.field(layout.REFERENCES, pa.list_(pa.string())),
            pa.field(layout.SOURCE, pa.string()),
            pa.field(layout.TEXT, pa.string()),
            pa.field(layout.THUMBNAIL, pa.binary()),
            pa.field(layout.POSITIONS, pa.int32()),
            pa.field(layout.CHECKSUM, pa.binary(layout.CHECKSUM_BYTES)),
            pa.field(layout.PREFIX_BYTES, pa.int64(), nullable=False),
            pa.field(layout.PREFIX_CHECKSUM, pa.uint64(), nullable=False),
            pa.field(layout.PREFIX, pa.large_binary(), metadata={"lance-encoding:blob": "true"}),
        ],
        metadata=metadata,
    )


def open_dataset(uri: str) -> Any | None:  # noqa: ANN401 (Lance is untyped)
    """Open the dataset at `uri`; None if there is none, a `StoreError` where it is damaged."""
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


def find_lineage(uri: str) -> Lineage | None:
    """What a store was made with, None if there is none yet."""
    dataset = open_dataset(uri)
    return None if dataset is None else read_lineage(dataset, uri)


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


def read_columns(dataset: Any, uri: str, *names: str, **options: Any) -> list[list[Any]]:  # noqa: ANN401
    """Columns of all rows, or of those that Lance's scan options choose."""
    with wrap_errors(f"reading the page store at {uri}"):
        table = dataset.to_table(columns=list(names), **options)
        return [table.column(name).to_pylist() for name in names]


def shorten(names: Sequence[str], *, shown: int = 5) -> str:
    """The first few of `names`, and how many more there are."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


_PLACE = re.compile(r",? \S+\.rs:\d+(:\d+)?")  # in Lance's own source, at the end of its messages


@contextmanager
def wrap_errors(action: str) -> Iterator[None]:
    """Turn what Lance and the file system raise into a `StoreError` that names the action."""
    try:
        yield
    except (OSError, ValueError, RuntimeError, pa.ArrowException) as error:
        raise StoreError(f"{action} failed: {_PLACE.sub('', str(error))}") from error
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


def read_basis(uri: str, lineage: Lineage) -> Basis | None:
    """The basis of a store, shared with others that have it; None for int8 pages."""
    if lineage.storage.basis is None:
        return None
    if (basis := _BASES.get(lineage.storage.basis)) is not None:
        return basis
    content = read_file(uri, layout.BASIS)
    if content is None or layout.digest_basis(content) != lineage.storage.basis:
        state = "missing" if content is None else "damaged"
        raise StoreError(
            f"{layout.BASIS} of the page store at {uri} is {state}: without it no page can be read; "
            "restore it from a copy, or index the documents into a new store"
        )
    basis = _BASES[lineage.storage.basis] = Basis.from_bytes(content)
    return basis


def write_file(uri: str, name: str, content: bytes) -> None:
    """Write a small file beside a store, whole or not at all."""
    root = local_root(uri)
    if root is not None:
        with replace_file(root / name) as scratch:
            scratch.write_bytes(content)
        return
    with TemporaryDirectory(prefix="ridgerank-") as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        RemoteFolder(uri).put(path)


def read_file(uri: str, name: str) -> bytes | None:
    """A small file beside a store, None if it is not there."""
    root = local_root(uri)
    if root is not None:
        path = root / name
        return path.read_bytes() if path.is_file() else None
    with TemporaryDirectory(prefix="ridgerank-") as folder:
        found = RemoteFolder(uri).get(name, Path(folder))
        return (Path(folder) / name).read_bytes() if found else None
