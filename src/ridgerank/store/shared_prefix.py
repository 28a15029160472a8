"""The positions before the page, kept once beside a store of format 2.

The prompt before the page is the same for every page, and a causal model reads it before the page: its keys
and values do not depend on the page. They are kept in float32: the first positions draw the most attention.
"""

import hashlib
from pathlib import Path
from tempfile import TemporaryDirectory

from safetensors import SafetensorError
from safetensors.numpy import load, save

from ridgerank.atomic import replace_file
from ridgerank.errors import StoreError
from ridgerank.store import lance_dataset, layout
from ridgerank.store.layout import SharedPrefix
from ridgerank.store.remote_folder import RemoteFolder


def write_shared(uri: str, shared: SharedPrefix) -> str:
    """Write them beside a store, before its dataset is made; return the digest that the dataset records."""
    content = save({"keys": shared.keys, "values": shared.values})
    root = lance_dataset.local_root(uri)
    if root is not None:
        with replace_file(root / layout.SHARED) as scratch:
            scratch.write_bytes(content)
    else:
        with TemporaryDirectory(prefix="ridgerank-") as folder:
            path = Path(folder) / layout.SHARED
            path.write_bytes(content)
            RemoteFolder(uri).put(path)
    return _digest(content)


def read_shared(uri: str, digest: str) -> SharedPrefix:
    """Read them back; a file that is missing or has another digest is refused."""
    content = _read(uri)
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
    # Copies: memory of `bytes` is read-only, which torch warns of.
    return SharedPrefix(tensors["keys"].copy(), tensors["values"].copy())


def _read(uri: str) -> bytes | None:
    root = lance_dataset.local_root(uri)
    if root is not None:
        path = root / layout.SHARED
        return path.read_bytes() if path.is_file() else None
    with TemporaryDirectory(prefix="ridgerank-") as folder:
        if not RemoteFolder(uri).get(layout.SHARED, Path(folder)):
            return None
        return (Path(folder) / layout.SHARED).read_bytes()


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=32).hexdigest()
