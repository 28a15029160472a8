"""Prefixes of a store on an object store, kept on a local disk up to a number of bytes.

One file per prefix: its bytes, then a BLAKE2b-128 of them. A file appears whole (`atomic.replace_file`) and
is compared with its digest when it is read; a file that was cut or altered is removed and read from the
store again. Any number of processes may share a folder, and it may be removed at any time. A cache is
optional: a disk that is full or fails is said once, and the store is read without it.
"""

import hashlib
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from ridgerank.atomic import replace_file
from ridgerank.errors import StoreError
from ridgerank.store.cache import CacheCounts
from ridgerank.store.catalog import PrefixRange
from ridgerank.store.prefix_readers import BlockReader, DataFiles

log = logging.getLogger(__name__)

_SUFFIX = ".prefix"
_DIGEST_BYTES = 16
_SHARE_AFTER_SWEEP = 0.9
"""A full folder is emptied to this share of its capacity, so that it is not listed for every page."""
_RELIST_SHARE = 0.05
"""Other processes write, too: a folder is listed again after this share of its capacity was added."""


class DiskCache:
    """A folder that holds at most `capacity_bytes`, the least recently used leaving first; for many threads.

    A process notices the files of others when it lists the folder, so each process may exceed the capacity by
    a twentieth of it.
    """

    def __init__(self, folder: Path, *, capacity_bytes: int) -> None:
        if capacity_bytes < 1:
            raise StoreError(f"a cache of {capacity_bytes} bytes on disk, wanted at least 1")
        self.folder = folder
        self._capacity = capacity_bytes
        self._lock = Lock()
        self._bytes_since_listing = 0
        self._hits = self._misses = 0
        self._told = False
        """Whether it was said that the folder cannot be used."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"no cache can be made in {folder}: {error}; name another folder") from error
        self._nbytes = self._sweep()

    def get(self, key: str, nbytes: int) -> NDArray[np.uint8] | None:
        """The bytes kept under a key, None where there are none or they are damaged."""
        path = self._path(key)
        try:
            content = np.fromfile(path, dtype=np.uint8)
            os.utime(path)  # the time of last use
        except FileNotFoundError:
            content = None
        except OSError as error:
            self._say_once("read", error)
            content = None
        if content is not None and not _is_whole(key, content, nbytes):
            with suppress(OSError):
                path.unlink(missing_ok=True)
            content = None
        with self._lock:
            self._hits += content is not None
            self._misses += content is None
        return None if content is None else content[:nbytes]

    def put(self, key: str, block: NDArray[np.uint8]) -> None:
        """Keep bytes under a key, unless they are larger than the whole cache."""
        nbytes = block.nbytes + _DIGEST_BYTES
        if nbytes > self._capacity:
            return
        with self._lock:
            self._nbytes += nbytes
            self._bytes_since_listing += nbytes
            if self._nbytes > self._capacity or self._bytes_since_listing > _RELIST_SHARE * self._capacity:
                self._bytes_since_listing = 0
                self._nbytes = self._sweep(room=nbytes) + nbytes
        try:
            with replace_file(self._path(key), durable=False) as scratch, scratch.open("wb") as file:
                file.write(block.data)
                file.write(_digest(key, block))
        except FileNotFoundError:
            pass  # another process swept the scratch file: the prefix is read from the store again
        except OSError as error:
            self._say_once("written", error)

    def counts(self) -> CacheCounts:
        """Hits and misses of this process, and all that the folder holds now."""
        files = self._files()
        with self._lock:
            return CacheCounts(self._hits, self._misses, len(files), sum(size for _, size, _ in files))

    def _say_once(self, done: str, error: OSError) -> None:
        with self._lock:
            told, self._told = self._told, True
        if not told:
            log.warning(
                "the cache in %s cannot be %s (%s): pages are read from the store; this is said once",
                self.folder,
                done,
                error,
            )

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}{_SUFFIX}"

    def _files(self) -> list[tuple[float, int, Path]]:
        """Last use, size and path of every file, scratch files included, the least recently used first."""
        files = []
        for path in self.folder.glob("??/*"):
            with suppress(OSError):
                status = path.stat()
                files.append((status.st_mtime, status.st_size, path))
        return sorted(files)

    def _sweep(self, *, room: int = 0) -> int:
        """Remove the least recently used files until `room` bytes fit; return the bytes left."""
        files = self._files()
        nbytes = sum(size for _, size, _ in files)
        if nbytes + room <= self._capacity:
            return nbytes
        for _, size, path in files:
            if nbytes + room <= _SHARE_AFTER_SWEEP * self._capacity:
                break
            with suppress(OSError):
                path.unlink()
            nbytes -= size
        return nbytes


class CachedBlockReader(BlockReader):
    """A `BlockReader` that reads whole prefixes through a `DiskCache`."""

    reads_whole = True

    def __init__(self, inner: BlockReader, disk: DiskCache, files: DataFiles, uri: str) -> None:
        self.threads = inner.threads
        self._inner = inner
        self._disk = disk
        self._files = files
        self._uri = uri.rstrip("/")

    def read(self, prefix_range: PrefixRange, start: int, out: memoryview) -> None:
        """Fill `out` with the bytes of this prefix from `start` on."""
        block = np.empty(prefix_range.nbytes, dtype=np.uint8)
        self.read_group([prefix_range], [block.data])
        np.copyto(np.frombuffer(out, dtype=np.uint8), block[start : start + len(out)])

    def group(self, ranges: Sequence[PrefixRange]) -> list[list[int]]:
        """As the reader behind the cache would have them."""
        return self._inner.group(ranges)

    def read_group(self, ranges: Sequence[PrefixRange], outs: Sequence[memoryview]) -> None:
        """Fill each of `outs` with a whole prefix; what is not kept yet is read together, then kept."""
        missing: list[tuple[PrefixRange, memoryview]] = []
        for prefix_range, out in zip(ranges, outs, strict=True):
            block = self._disk.get(self._key(prefix_range), prefix_range.nbytes)
            if block is None:
                missing.append((prefix_range, out))
            else:
                out[:] = block.data
        if not missing:
            return
        self._inner.read_group(*zip(*missing, strict=True))
        for prefix_range, out in missing:
            self._disk.put(self._key(prefix_range), np.frombuffer(out, dtype=np.uint8))

    def _key(self, prefix_range: PrefixRange) -> str:
        # A data file is never written twice: its name and a range of it always stand for the same bytes.
        path = self._files.path(prefix_range)
        lines = (self._uri, path, prefix_range.address, prefix_range.offset, prefix_range.nbytes)
        return hashlib.blake2b("\n".join(map(str, lines)).encode(), digest_size=32).hexdigest()


def _is_whole(key: str, content: NDArray[np.uint8], nbytes: int) -> bool:
    if content.nbytes != nbytes + _DIGEST_BYTES:
        return False
    return content[nbytes:].tobytes() == _digest(key, content[:nbytes])


def _digest(key: str, block: NDArray[np.uint8]) -> bytes:
    digest = hashlib.blake2b(key.encode(), digest_size=_DIGEST_BYTES)
    digest.update(block.data)
    return digest.digest()
