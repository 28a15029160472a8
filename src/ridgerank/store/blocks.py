"""Two ways to the same bytes of a prefix: straight from the data file, or through Lance.

On a local disk a prefix is one range of its fragment's data file and goes into the caller's memory in one
copy. What the system already holds in memory is copied from a lasting map of the file: with the other core
busy that measured 1.4 times as fast as `preadv`. What has to come from the disk is read with `preadv`, about
twice as fast as faulting it in. Anywhere else, and wherever a range cannot be told, Lance reads the blob.
"""

import mmap
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ridgerank.errors import StoreError
from ridgerank.store import dataset, layout
from ridgerank.store.catalog import Place


class BlockReader(Protocol):
    """Reads parts of prefixes into memory, from several threads at once."""

    @property
    def threads(self) -> int:
        """How many reads are worth doing at once."""

    def read(self, place: Place, start: int, out: memoryview) -> None:
        """Fill `out` with the bytes of this prefix from `start` on."""


class DirectBlocks:
    """Reads ranges of local data files."""

    threads = 4

    def __init__(self, files: dict[int, Path], *, mapped: bool) -> None:
        self.files = files
        self._maps: dict[int, NDArray[np.uint8]] = {}
        # A map holds a descriptor. A store of more files is too large to lie in memory anyway.
        self._mapping = mapped and len(files) <= _MAPPED_FILES and hasattr(os, "RWF_NOWAIT")

    def read(self, place: Place, start: int, out: memoryview) -> None:
        """Fill `out` with the bytes of this prefix from `start` on."""
        path = self.files[place.address >> 32]
        offset = place.offset + start
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError as error:
            raise StoreError(f"{path} is gone: the store was rewritten meanwhile; open it again") from error
        try:
            # Touching a map beyond the file's end would kill the process: look at its length each time.
            if os.fstat(descriptor).st_size < offset + len(out):
                raise StoreError(f"{path} ends within a prefix: the file was cut; index its pages again")
            if self._mapping and _in_memory(descriptor, offset + len(out) - 1):
                mapped = self._mapped(place.address >> 32, descriptor)
                np.copyto(np.frombuffer(out, dtype=np.uint8), mapped[offset : offset + len(out)])
            else:
                _read_fully(descriptor, offset, out)
        except OSError as error:
            raise StoreError(f"reading {path} failed: {error}") from error
        finally:
            os.close(descriptor)

    def _mapped(self, fragment: int, descriptor: int) -> NDArray[np.uint8]:
        mapped = self._maps.get(fragment)
        if mapped is None:
            mapped = np.frombuffer(mmap.mmap(descriptor, 0, prot=mmap.PROT_READ), dtype=np.uint8)
            self._maps[fragment] = mapped
        return mapped


_MAPPED_FILES = 256


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


class LanceBlocks:
    """Reads blobs through Lance, on any storage it knows."""

    threads = 16

    def __init__(self, opened: Any) -> None:  # noqa: ANN401 (Lance is untyped)
        self._dataset = opened

    def read(self, place: Place, start: int, out: memoryview) -> None:
        """Fill `out` with the bytes of this prefix from `start` on."""
        with dataset.telling("reading a prefix"):
            [blob] = self._dataset.take_blobs(layout.PREFIX, addresses=[place.address])
            out[:] = blob.read_range(start, len(out))


def reader_for(opened: Any, uri: str, *, mapped: bool) -> BlockReader:  # noqa: ANN401
    """Choose the faster reader that this store allows."""
    root = dataset.local_root(uri)
    files = None if root is None else _data_files(opened, root)
    return LanceBlocks(opened) if files is None else DirectBlocks(files, mapped=mapped)


def _data_files(opened: Any, root: Path) -> dict[int, Path] | None:  # noqa: ANN401
    """Name the data file with each fragment's prefixes, or None where one cannot be told for certain."""
    [prefix_id] = [field.id() for field in opened.lance_schema.fields() if field.name() == layout.PREFIX]
    files: dict[int, Path] = {}
    for fragment in opened.get_fragments():
        holding = [file for file in fragment.metadata.files if prefix_id in file.fields]
        if len(holding) != 1 or holding[0].base_id is not None or _version(holding[0]) > _INLINE_BLOBS:
            return None
        files[fragment.fragment_id] = root / "data" / holding[0].path
    return files


_INLINE_BLOBS = (2, 1)
"""The last version of Lance's files in which a blob lies in the data file itself."""


def _version(file: Any) -> tuple[int, int]:  # noqa: ANN401
    return file.file_major_version, file.file_minor_version


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
