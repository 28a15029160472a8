"""Ways to the same bytes of a prefix: ranges of the data file, or Lance's blobs.

On a local disk a prefix is one range of its fragment's data file and goes into the caller's memory in one
copy. What the system already holds in memory is copied from a lasting map of the file: with the other core
busy that measured 1.4 times as fast as `preadv`. What has to come from the disk is read with `preadv`, about
twice as fast as faulting it in. On an object store it is one request for one range of the data file: Lance's
blobs would ask for their description first, at every reading. Where a range cannot be told, Lance reads the
blob.
"""

import mmap
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from lance.file import LanceFileSession
from numpy.typing import NDArray

from ridgerank.errors import StoreError
from ridgerank.store import lance_dataset, layout
from ridgerank.store.catalog import Place


class BlockReader(Protocol):
    """Reads parts of prefixes into memory, from several threads at once."""

    @property
    def threads(self) -> int:
        """How many reads are worth doing at once."""

    @property
    def whole(self) -> bool:
        """Whether a prefix had better be read in one piece than layer by layer."""

    def read(self, place: Place, start: int, out: memoryview) -> None:
        """Fill `out` with the bytes of this prefix from `start` on."""


class DataFiles:
    """The data file with the prefixes of each fragment, looked up when it is first needed."""

    def __init__(self, opened: Any) -> None:  # noqa: ANN401 (Lance is untyped)
        self._dataset = opened
        [self._prefix] = [
            field.id() for field in opened.lance_schema.fields() if field.name() == layout.PREFIX
        ]
        self._paths: dict[int, str | None] = {}

    def path(self, place: Place) -> str | None:
        """The file's path within the store, None where a range of it cannot be told for certain."""
        fragment = place.address >> 32
        if fragment not in self._paths:
            self._paths[fragment] = self._path(fragment)
        return self._paths[fragment]

    def _path(self, fragment: int) -> str | None:
        files = self._dataset.get_fragment(fragment).metadata.files
        holding = [file for file in files if self._prefix in file.fields]
        if len(holding) != 1 or holding[0].base_id is not None or _version(holding[0]) > _INLINE_BLOBS:
            return None
        return f"data/{holding[0].path}"


_INLINE_BLOBS = (2, 1)
"""The last version of Lance's files in which a blob lies in the data file itself."""


def _version(file: Any) -> tuple[int, int]:  # noqa: ANN401
    return file.file_major_version, file.file_minor_version


class DirectBlocks:
    """Reads ranges of local data files."""

    threads = 4
    whole = False

    def __init__(self, opened: Any, root: Path, *, mapped: bool) -> None:  # noqa: ANN401
        self._root = root
        self._files = DataFiles(opened)
        self._otherwise = LanceBlocks(opened)
        self._maps: dict[Path, NDArray[np.uint8]] = {}
        self._mapping = mapped and hasattr(os, "RWF_NOWAIT")

    def file(self, place: Place) -> Path | None:
        """The data file a prefix lies in, None where it is not read directly."""
        path = self._files.path(place)
        return None if path is None else self._root / path

    def read(self, place: Place, start: int, out: memoryview) -> None:
        """Fill `out` with the bytes of this prefix from `start` on."""
        path = self.file(place)
        if path is None:
            self._otherwise.read(place, start, out)
            return
        offset = place.offset + start
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError as error:
            raise StoreError(f"{path} is gone: the store was rewritten meanwhile; open it again") from error
        try:
            # Touching a map beyond the file's end would kill the process: look at its length each time.
            if os.fstat(descriptor).st_size < offset + len(out):
                raise StoreError(f"{path} ends within a prefix: the file was cut; index its pages again")
            if self._may_map(path) and _in_memory(descriptor, offset + len(out) - 1):
                mapped = self._mapped(path, descriptor)
                np.copyto(np.frombuffer(out, dtype=np.uint8), mapped[offset : offset + len(out)])
            else:
                _read_fully(descriptor, offset, out)
        except OSError as error:
            raise StoreError(f"reading {path} failed: {error}") from error
        finally:
            os.close(descriptor)

    def _may_map(self, path: Path) -> bool:
        return self._mapping and (path in self._maps or len(self._maps) < _MAPPED_FILES)

    def _mapped(self, path: Path, descriptor: int) -> NDArray[np.uint8]:
        mapped = self._maps.get(path)
        if mapped is None:
            mapped = np.frombuffer(mmap.mmap(descriptor, 0, prot=mmap.PROT_READ), dtype=np.uint8)
            self._maps[path] = mapped
        return mapped


_MAPPED_FILES = 256
"""A map holds a descriptor. A store of more files is too large to lie in memory anyway."""


def _in_memory(descriptor: int, offset: int) -> bool:
    """Tell whether a byte is in the system's memory: a guess for those before it, only speed rests on it."""
    try:
        return os.preadv(descriptor, [bytearray(1)], offset, os.RWF_NOWAIT) == 1
    except OSError:  # not there, or a file system that cannot tell
        return False


def _read_fully(descriptor: int, offset: int, out: memoryview) -> None:
    filled = 0
    while filled < len(out):
        read = os.preadv(descriptor, [out[filled:]], offset + filled)
        if read == 0:
            raise OSError("the file ended early")
        filled += read


class RemoteBlocks:
    """Reads ranges of data files on an object store, through Lance's own client: one request a read."""

    threads = 16
    whole = True

    def __init__(self, opened: Any, uri: str) -> None:  # noqa: ANN401
        self._files = DataFiles(opened)
        self._otherwise = LanceBlocks(opened)
        self._session = LanceFileSession(uri)

    def read(self, place: Place, start: int, out: memoryview) -> None:
        """Fill `out` with the bytes of this prefix from `start` on."""
        path = self._files.path(place)
        if path is None:
            self._otherwise.read(place, start, out)
            return
        with lance_dataset.telling(f"reading {path}"):
            out[:] = self._session.read_range(path, place.offset + start, len(out))


class LanceBlocks:
    """Reads blobs through Lance, on any storage it knows."""

    threads = 16
    whole = True

    def __init__(self, opened: Any) -> None:  # noqa: ANN401 (Lance is untyped)
        self._dataset = opened

    def read(self, place: Place, start: int, out: memoryview) -> None:
        """Fill `out` with the bytes of this prefix from `start` on."""
        with lance_dataset.telling("reading a prefix"):
            [blob] = self._dataset.take_blobs(layout.PREFIX, addresses=[place.address])
            out[:] = blob.read_range(start, len(out))


def reader_for(opened: Any, uri: str, *, mapped: bool) -> BlockReader:  # noqa: ANN401
    """Choose the faster reader that this store allows."""
    root = lance_dataset.local_root(uri)
    return RemoteBlocks(opened, uri) if root is None else DirectBlocks(opened, root, mapped=mapped)


def each(read: Callable[[int], None], count: int, *, threads: ThreadPoolExecutor, helpers: int) -> None:
    """Call `read` with 0 to `count` − 1, here and in `helpers` threads at once.

    An error is raised when all have stopped: nobody then still writes to the caller's memory.
    """
    remaining = iter(range(count))

    def work() -> None:
        for index in remaining:
            read(index)

    helping = [threads.submit(work) for _ in range(min(helpers, count - 1))]
    try:
        work()
    finally:
        started = [helper for helper in helping if not helper.cancel()]
        wait(started)
    for helper in started:
        helper.result()
