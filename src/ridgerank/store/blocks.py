"""Two ways to the same bytes of a prefix: straight from the data file, or through Lance.

On a local disk a prefix is one range of its fragment's data file, read with `preadv` into the caller's
memory: no copy is made between, and several threads read at once. Anywhere else, and wherever a
range cannot be told, Lance reads the blob.
"""

import os
from pathlib import Path
from typing import Any, Protocol

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

    def __init__(self, files: dict[int, Path]) -> None:
        self._files = files

    def read(self, place: Place, start: int, out: memoryview) -> None:
        """Fill `out` with the bytes of this prefix from `start` on."""
        path = self._files[place.address >> 32]
        offset = place.offset + start
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError as error:
            raise StoreError(f"{path} is gone: the store was rewritten meanwhile; open it again") from error
        try:
            filled = 0
            while filled < len(out):
                read = os.preadv(descriptor, [out[filled:]], offset + filled)
                if read == 0:
                    raise StoreError(f"{path} ends within a prefix: the file was cut; index its pages again")
                filled += read
        finally:
            os.close(descriptor)


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


def reader_for(opened: Any, uri: str) -> BlockReader:  # noqa: ANN401
    """The faster reader that this store allows."""
    root = dataset.local_root(uri)
    files = None if root is None else _data_files(opened, root)
    return LanceBlocks(opened) if files is None else DirectBlocks(files)


def _data_files(opened: Any, root: Path) -> dict[int, Path] | None:  # noqa: ANN401
    """The data file with each fragment's prefixes, or None where one cannot be told for certain."""
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
