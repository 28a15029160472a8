"""The Lance dataset of a page store: its schema, opening it, and Lance's errors as `StoreError`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import lance
import pyarrow as pa

from ridgerank.errors import ArtifactError, StoreError
from ridgerank.lineage import Lineage
from ridgerank.store import layout
from ridgerank.store.manifest_seal import require_seal
from ridgerank.store.number_format import NumberFormat

_INDEX_CACHE_BYTES = 512 << 20
_METADATA_CACHE_BYTES = 128 << 20
"""What Lance may keep of a store in memory; its defaults are gigabytes."""


def local_root(uri: str) -> Path | None:
    """The directory behind `uri`, None where it is another kind of storage."""
    if "://" not in uri:
        # Lance reads `~` as the home folder; so does what lies beside its dataset.
        return Path(uri).expanduser() if Path(uri).parts[:1] == ("~",) else Path(uri)
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def schema(lineage: Lineage, shared_digest: str | None = None) -> pa.Schema:
    """Define the columns of a new store, made with `lineage`, its shared positions beside it.

    The paper's numbers are written in the first format, as the first release wrote them.
    """
    paper = NumberFormat(lineage.key_bits, lineage.value_bits, lineage.number_group).symmetric
    metadata = {layout.FORMAT_KEY: "1" if paper else "2", layout.LINEAGE_KEY: lineage.to_json()}
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
    """Open the dataset at `uri`; None where there is none, a `StoreError` where it is damaged."""
    root = local_root(uri)
    if root is not None:
        require_seal(root)
    try:
        return lance.dataset(
            uri, index_cache_size_bytes=_INDEX_CACHE_BYTES, metadata_cache_size_bytes=_METADATA_CACHE_BYTES
        )
    except (ValueError, OSError) as error:
        if "not found" in str(error).lower():
            return None
        raise StoreError(f"the page store at {uri} cannot be opened: {error}") from error
    except BaseException as error:
        raise_if_panic(error, f"opening the page store at {uri}")
        raise


def read_lineage(dataset: Any, uri: str) -> Lineage:  # noqa: ANN401
    """Read the lineage of a store; a dataset of another kind or format is refused."""
    with wrap_errors(f"reading what the page store at {uri} was made with"):
        metadata = {key.decode(): value.decode() for key, value in (dataset.schema.metadata or {}).items()}
    stored_format = metadata.get(layout.FORMAT_KEY)
    if stored_format is None:
        raise StoreError(f"{uri} is a Lance dataset but no page store; name another place")
    if stored_format not in map(str, layout.FORMATS):
        raise ArtifactError(
            f"the page store at {uri} has format {stored_format}, wanted 1 or 2: "
            "read it with the ridgerank that wrote it, or index the pages again"
        )
    missing = [name for name in layout.COLUMNS if name not in dataset.schema.names]
    if missing:
        raise StoreError(
            f"the page store at {uri} has no {shorten(missing)}: damaged; restore it from a copy"
        )
    return Lineage.from_json(metadata.get(layout.LINEAGE_KEY, ""))


def read_shared_digest(dataset: Any) -> str | None:  # noqa: ANN401
    """The digest of a store's shared positions, None where its pages are stored with them."""
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
        raise_if_panic(error, action)
        raise


def raise_if_panic(error: BaseException, action: str) -> None:
    """Raise a `StoreError` where Lance gave up on bytes that it had not expected: its files are damaged."""
    if type(error).__name__ == "PanicException":
        reason = str(error).partition("\n")[0][:200]
        raise StoreError(
            f"{action} failed: the store is damaged ({reason}); restore it from a copy"
        ) from error
