"""Prefixes kept on a local disk up to a number of bytes: what was read from afar once is near from then on.

A file a prefix: its bytes, then their BLAKE2b-128. Files appear whole (`files.replacing`), are compared with
their digest when opened, and one that was cut or altered is removed and read anew. Any number of
processes may share a folder, and it may be removed at any time.
"""

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from ridgerank.atomic import replacing
from ridgerank.errors import StoreError
from ridgerank.store.cache import CacheCounts
from ridgerank.store.catalog import Place
from ridgerank.store.prefix_readers import BlockReader, DataFiles

_SUFFIX = ".prefix"
_DIGEST_BYTES = 16
_LEFT_AFTER_SWEEP = 0.9
"""A full folder is emptied to this share, so that it is not listed again for every page."""
_SEEN_SHARE = 0.05
"""Other processes write, too: a folder is listed again after so much of its capacity was added here."""


class DiskCache:
    """A folder that holds at most `capacity_bytes`, the least recently used leaving first; for many threads.

    Processes that share the folder notice each other's files when they list it, so together they may go over
    by a twentieth of the capacity each.
    """

    def __init__(self, folder: Path, *, capacity_bytes: int) -> None:
        if capacity_bytes < 1:
            raise StoreError(f"a cache of {capacity_bytes} bytes on disk, wanted at least 1")
        self.folder = folder
        self._capacity = capacity_bytes
        self._lock = Lock()
        self._added = 0
        self._hits = self._misses = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"no cache can be made in {folder}: {error}; name another folder") from error
        self._nbytes = self._sweep()

    def get(self, key: str, nbytes: int) -> NDArray[np.uint8] | None:
        """The bytes kept under a key, None where there are none or not those that were written."""
        path = self._path(key)
        try:
            content = np.fromfile(path, dtype=np.uint8)
            os.utime(path)  # what is used is not the first to leave
        except FileNotFoundError:
            content = None
        except OSError as error:
            raise StoreError(f"reading the cache in {self.folder} failed: {error}") from error
        if content is not None and not _is_whole(key, content, nbytes):
            path.unlink(missing_ok=True)
            content = None
        with self._lock:
            self._hits += content is not None
            self._misses += content is None
        return None if content is None else content[:nbytes]

    def put(self, key: str, block: NDArray[np.uint8]) -> None:
        """Keep bytes under a key; what is larger than the whole cache is not kept."""
        nbytes = block.nbytes + _DIGEST_BYTES
        if nbytes > self._capacity:
            return
        with self._lock:
            self._nbytes += nbytes
            self._added += nbytes
            if self._nbytes > self._capacity or self._added > _SEEN_SHARE * self._capacity:
                self._added = 0
                self._nbytes = self._sweep(room=nbytes) + nbytes
        try:
            with replacing(self._path(key), durable=False) as scratch, scratch.open("wb") as file:
                file.write(block.data)
                file.write(_digest(key, block))
        except FileNotFoundError:
            pass  # another process took this file for one that a killed writer left: it is read again
        except OSError as error:
            raise StoreError(f"writing to the cache in {self.folder} failed: {error}") from error

    def counts(self) -> CacheCounts:
        """How the cache has fared here, and what the folder holds now, other processes' files included."""
        files = self._files()
        with self._lock:
            return CacheCounts(self._hits, self._misses, len(files), sum(size for _, size, _ in files))

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}{_SUFFIX}"

    def _files(self) -> list[tuple[float, int, Path]]:
        """Last use, size and path of every file, killed writers' included, the longest unused first."""
        found = []
        for path in self.folder.glob("??/*"):
            with suppress(FileNotFoundError):
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
        return sorted(found)

    def _sweep(self, *, room: int = 0) -> int:
        """Remove what was not used for the longest time until `room` fits; the bytes left."""
        files = self._files()
        nbytes = sum(size for _, size, _ in files)
        if nbytes + room <= self._capacity:
            return nbytes
        for _, size, path in files:
            if nbytes + room <= _LEFT_AFTER_SWEEP * self._capacity:
                break
            with suppress(FileNotFoundError):
                path.unlink()
            nbytes -= size
        return nbytes


class CachedBlocks:
    """A `BlockReader` that reads whole prefixes through a `DiskCache`."""

    whole = True

    def __init__(self, inner: BlockReader, disk: DiskCache, files: DataFiles, uri: str) -> None:
        self.threads = inner.threads
        self._inner = inner
        self._disk = disk
        self._files = files
        self._uri = uri.rstrip("/")

    def read(self, place: Place, start: int, out: memoryview) -> None:
        """Fill `out` with the bytes of this prefix from `start` on."""
        key = self._key(place)
        block = self._disk.get(key, place.nbytes)
        if block is None:
            block = np.empty(place.nbytes, dtype=np.uint8)
            self._inner.read(place, 0, block.data)
            self._disk.put(key, block)
        np.copyto(np.frombuffer(out, dtype=np.uint8), block[start : start + len(out)])

    def _key(self, place: Place) -> str:
        # A data file is never written twice: its name and the place in it stand for these bytes for ever.
        where = f"{self._uri}\n{self._files.path(place)}\n{place.address}\n{place.offset}\n{place.nbytes}"
        return hashlib.blake2b(where.encode(), digest_size=32).hexdigest()


def _is_whole(key: str, content: NDArray[np.uint8], nbytes: int) -> bool:
    if content.nbytes != nbytes + _DIGEST_BYTES:
        return False
    return content[nbytes:].tobytes() == _digest(key, content[:nbytes])


def _digest(key: str, block: NDArray[np.uint8]) -> bytes:
    digest = hashlib.blake2b(key.encode(), digest_size=_DIGEST_BYTES)
    digest.update(block.data)
    return digest.digest()
