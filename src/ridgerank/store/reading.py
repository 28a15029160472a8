"""Reading the bytes of prefixes: as ranges of a data file, or as Lance blobs; and what is kept of them.

On a local disk a prefix is one range of its fragment's data file, copied once, into the caller's memory.
Bytes that the system already has in memory are copied from a lasting map of the file: with the other core
busy that measured 1.4 times as fast as `preadv`. Bytes that have to come from the disk are read with
`preadv`, about twice as fast as faulting them in. On an object store a prefix is one request for one range of
the data file, and small neighbours share a request; reading a blob would request its description first, every
time. Where the range is not known, Lance reads the blob.
"""

import mmap
import os
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import numpy as np
from lance.file import LanceFileSession
from numpy.typing import NDArray

from ridgerank.errors import RidgeRankError, StoreError
from ridgerank.store import lance_dataset, layout
from ridgerank.store.layout import PackedPrefix

if TYPE_CHECKING:
    from ridgerank.store.page_store import CatalogEntry, PageStore


class BlockReader(ABC):
    """Reads parts of prefixes into memory, from several threads at once."""

    threads: int
    """How many reads should run at once."""
    reads_whole: bool
    """Whether reading a prefix in one piece is faster than layer by layer."""

    @abstractmethod
    def read(self, entry: "CatalogEntry", start: int, out: memoryview) -> None:
        """Fill `out` with bytes of this prefix, from its byte `start` on."""

    def group(self, entries: Sequence["CatalogEntry"]) -> list[list[int]]:
        """Which prefixes to read together, by their numbers; each by itself unless there is more to gain."""
        return [[number] for number in range(len(entries))]

    def read_group(self, entries: Sequence["CatalogEntry"], outs: Sequence[memoryview]) -> None:
        """Fill each of `outs` with a whole prefix of one group."""
        for entry, out in zip(entries, outs, strict=True):
            self.read(entry, 0, out)


class DataFiles:
    """The data file with the prefixes of each fragment, looked up on first use."""

    def __init__(self, dataset: Any) -> None:  # noqa: ANN401 (Lance is untyped)
        self._dataset = dataset
        [self._prefix_field] = [
            field.id() for field in dataset.lance_schema.fields() if field.name() == layout.PREFIX
        ]
        self._paths: dict[int, str | None] = {}

    def path(self, entry: "CatalogEntry") -> str | None:
        """The file's path within the store, None if prefixes are not known to be entries of one file."""
        fragment = entry.fragment
        if fragment not in self._paths:
            self._paths[fragment] = self._path(fragment)
        return self._paths[fragment]

    def _path(self, fragment: int) -> str | None:
        files = self._dataset.get_fragment(fragment).metadata.files
        prefix_files = [file for file in files if self._prefix_field in file.fields]
        if (
            len(prefix_files) != 1
            or prefix_files[0].base_id is not None
            or _version(prefix_files[0]) > _INLINE_BLOBS_VERSION
        ):
            return None
        return f"data/{prefix_files[0].path}"


_INLINE_BLOBS_VERSION = (2, 1)
"""The last version of Lance's files in which a blob lies in the data file itself."""


def _version(file: Any) -> tuple[int, int]:  # noqa: ANN401
    return file.file_major_version, file.file_minor_version


class LocalBlockReader(BlockReader):
    """Reads entries of local data files."""

    threads = 4
    reads_whole = False

    def __init__(self, dataset: Any, root: Path, *, mapped: bool) -> None:  # noqa: ANN401
        self._root = root
        self._files = DataFiles(dataset)
        self._fallback = LanceBlockReader(dataset)
        self._maps: dict[Path, NDArray[np.uint8]] = {}
        self._mapping = mapped and hasattr(os, "RWF_NOWAIT")

    def file(self, entry: "CatalogEntry") -> Path | None:
        """The data file a prefix lies in, None if it is not read directly."""
        path = self._files.path(entry)
        return None if path is None else self._root / path

    def read(self, entry: "CatalogEntry", start: int, out: memoryview) -> None:
        """Fill `out` with bytes of this prefix, from its byte `start` on."""
        path = self.file(entry)
        if path is None:
            self._fallback.read(entry, start, out)
            return
        offset = entry.offset + start
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
"""A map holds a descriptor. A store of more files does not fit into memory anyway."""


def _in_memory(descriptor: int, offset: int) -> bool:
    """Whether a byte is in the system's memory, and so probably those before it; only speed depends on it."""
    try:
        return os.preadv(descriptor, [bytearray(1)], offset, os.RWF_NOWAIT) == 1
    except OSError:  # not in memory, or a file system that cannot say
        return False


def _read_fully(descriptor: int, offset: int, out: memoryview) -> None:
    filled = 0
    while filled < len(out):
        read = os.preadv(descriptor, [out[filled:]], offset + filled)
        if read == 0:
            raise OSError("the file ended early")
        filled += read


class RemoteBlockReader(BlockReader):
    """Reads entries of data files on an object store, through Lance's own client: one request per read.

    Small prefixes that lie side by side, such as the pages of a document, share a request. Large ones do not:
    several requests at once are faster than a long one.
    """

    threads = 16
    reads_whole = True

    def __init__(self, dataset: Any, uri: str) -> None:  # noqa: ANN401
        self._files = DataFiles(dataset)
        self._fallback = LanceBlockReader(dataset)
        self._session = LanceFileSession(uri)

    def read(self, entry: "CatalogEntry", start: int, out: memoryview) -> None:
        """Fill `out` with bytes of this prefix, from its byte `start` on."""
        path = self._files.path(entry)
        if path is None:
            self._fallback.read(entry, start, out)
            return
        with lance_dataset.wrap_errors(f"reading {path}"):
            out[:] = self._session.read_range(path, entry.offset + start, len(out))

    def group(self, entries: Sequence["CatalogEntry"]) -> list[list[int]]:
        """Neighbours in one file, as far as one request for all of them stays short."""
        groups: list[list[int]] = []
        first, end = None, 0
        for number in sorted(
            range(len(entries)), key=lambda number: (entries[number].fragment, entries[number].offset)
        ):
            each = entries[number]
            fits = (
                first is not None
                and each.fragment == first.fragment
                and each.offset <= end + _SKIPPED_BYTES
                and each.offset + each.nbytes <= first.offset + _SHARED_BYTES
                and self._files.path(each) is not None
            )
            if fits:
                groups[-1].append(number)
            else:
                groups.append([number])
                first, end = each, 0
            end = max(end, each.offset + each.nbytes)
        return groups

    def read_group(self, entries: Sequence["CatalogEntry"], outs: Sequence[memoryview]) -> None:
        """Fill each of `outs` with a whole prefix of one group, by one request."""
        if len(entries) == 1:
            super().read_group(entries, outs)
            return
        start = min(each.offset for each in entries)
        together = bytearray(max(each.offset + each.nbytes for each in entries) - start)
        self.read(entries[0]._replace(offset=start), 0, memoryview(together))
        for each, out in zip(entries, outs, strict=True):
            out[:] = together[each.offset - start : each.offset - start + each.nbytes]


_SHARED_BYTES = 1 << 20
"""The longest request that several prefixes share."""
_SKIPPED_BYTES = 1 << 16
"""Bytes between two prefixes that are read in vain rather than asking twice."""


class LanceBlockReader(BlockReader):
    """Reads blobs through Lance, on any storage it knows."""

    threads = 16
    reads_whole = True

    def __init__(self, dataset: Any) -> None:  # noqa: ANN401 (Lance is untyped)
        self._dataset = dataset

    def read(self, entry: "CatalogEntry", start: int, out: memoryview) -> None:
        """Fill `out` with bytes of this prefix, from its byte `start` on."""
        with lance_dataset.wrap_errors("reading a prefix"):
            [blob] = self._dataset.take_blobs(layout.PREFIX, addresses=[entry.address])
            out[:] = blob.read_range(start, len(out))


def choose_reader(dataset: Any, uri: str, *, mapped: bool) -> BlockReader:  # noqa: ANN401
    """The fastest reader that the storage of this store allows."""
    root = lance_dataset.local_root(uri)
    return RemoteBlockReader(dataset, uri) if root is None else LocalBlockReader(dataset, root, mapped=mapped)


def read_whole(
    reader: BlockReader,
    entries: Sequence["CatalogEntry"],
    buffers: Sequence[NDArray[np.uint8]],
    threads: ThreadPoolExecutor,
) -> None:
    """Fill each of `buffers` with a prefix, several at once."""
    groups = reader.group(entries)

    def read(number: int) -> None:
        members = groups[number]
        reader.read_group(
            [entries[member] for member in members], [buffers[member].data for member in members]
        )

    run_parallel(read, len(groups), threads=threads, helpers=reader.threads - 1)


def run_parallel(
    read: Callable[[int], None], count: int, *, threads: ThreadPoolExecutor, helpers: int
) -> None:
    """Call `read` with 0 to `count` − 1, here and in `helpers` threads at once.

    An error is raised after all threads have stopped: none of them then still writes to the caller's memory.
    """
    remaining = iter(range(count))

    def work() -> None:
        for index in remaining:
            read(index)

    futures = [threads.submit(work) for _ in range(min(helpers, count - 1))]
    try:
        work()
    finally:
        started = [future for future in futures if not future.cancel()]
        wait(started)
    for future in started:
        future.result()


_STEP_BYTES = 1 << 20
"""Layers of one page are read in pieces of about this size: smaller pieces cost more calls than they save."""
_FIRST_BYTES = 1 << 20
"""What is read of a page at first: more than a header and positions ever take, and of a small page all."""


class LayerStream:
    """The prefixes of pages, read layer 0 of every page first, then layer 1, and so on; a context manager.

    The first piece of a page has its header and as many layers as it holds: of a small page, all of them.
    On an object store, where a request costs more than its bytes, prefixes are read whole.
    """

    def __init__(
        self, store: "PageStore", page_ids: Sequence[str], *, out: NDArray[np.uint8] | None = None
    ) -> None:
        entries, buffers = store.buffers(page_ids, out)

        def read(index: int, start: int, stop: int) -> None:
            store.blocks.read(entries[index], start, buffers[index][start:stop].data)

        if store.blocks.reads_whole:
            read_whole(store.blocks, entries, buffers, store.threads)
            read_bytes = [buffer.size for buffer in buffers]
        else:
            read_bytes = [min(buffer.size, _FIRST_BYTES) for buffer in buffers]
            run_parallel(
                lambda index: read(index, 0, read_bytes[index]),
                len(buffers),
                threads=store.threads,
                helpers=store.blocks.threads - 1,
            )
        self.prefixes: list[PackedPrefix] = [layout.unpack(buffer, shared=store.shared) for buffer in buffers]
        """Views. Their positions and masks can be used at once, a layer after `wait`."""
        shapes = [layout.read_header(buffer) for buffer in buffers]
        widest = max((shape.layer_nbytes for shape in shapes), default=1)
        self._layers_per_step = max(1, _STEP_BYTES // widest)
        self._steps: list[list[Future[None]]] = []
        for first in range(0, max((shape.layers for shape in shapes), default=0), self._layers_per_step):
            spans = [
                (
                    max(present, shape.layer_start(first) if first else 0),
                    shape.layer_start(first + self._layers_per_step),
                )
                for shape, present in zip(shapes, read_bytes, strict=True)
            ]
            self._steps.append(
                [
                    store.threads.submit(read, index, start, stop)
                    for index, (start, stop) in enumerate(spans)
                    if start < stop
                ]
            )

    def wait(self, layer: int) -> None:
        """Return once stored layers 0 to `layer` of every page have been read."""
        for step in self._steps[: layer // self._layers_per_step + 1]:
            for future in step:
                future.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop reading: after this no thread writes to the memory any more."""
        wait([future for step in self._steps for future in step if not future.cancel()])


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

CACHE_BYTES = 1 << 30
"""What a reranker keeps of its pages in memory unless told otherwise."""


class ByteLRU(Generic[Key, Value]):
    """A mapping of bounded size; safe for any number of threads."""

    def __init__(self, capacity_bytes: int, *, count_bytes: Callable[[Value], int]) -> None:
        self._capacity_bytes = capacity_bytes
        self._count_bytes = count_bytes
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._nbytes = 0
        self._lock = Lock()

    def get(self, key: Key) -> Value | None:
        """The value of a key, which becomes the most recently used; None if there is none."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key]

    def put(self, key: Key, value: Value) -> None:
        """Hold a value as the most recently used; one larger than the whole capacity is not held."""
        nbytes = self._count_bytes(value)
        with self._lock:
            if key in self._values:
                self._nbytes -= self._count_bytes(self._values.pop(key))
            if nbytes > self._capacity_bytes:
                return
            self._values[key] = value
            self._nbytes += nbytes
            while self._nbytes > self._capacity_bytes:
                _, evicted = self._values.popitem(last=False)
                self._nbytes -= self._count_bytes(evicted)

    def size(self) -> tuple[int, int]:
        """How many values are held, and their bytes."""
        with self._lock:
            return len(self._values), self._nbytes


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """Hits and misses of a cache so far, and what it holds now."""

    hits: int
    """Values that were in the cache, or already being read for another thread."""
    misses: int
    """Values that were read."""
    pages: int
    nbytes: int


class LoadingCache(Generic[Key, Value]):
    """Reads values through a bounded memory; safe for any number of threads.

    A value that two threads need at once is read once. One larger than the whole cache is not held.
    """

    def __init__(
        self,
        read: Callable[[Sequence[Key]], list[Value]],
        capacity_bytes: int,
        *,
        count_bytes: Callable[[Value], int],
    ) -> None:
        if capacity_bytes < 0:
            raise RidgeRankError(f"cache size must be 0 bytes or more, not {capacity_bytes}")
        self._read_missing = read
        self._lock = Lock()
        self._held: ByteLRU[Key, Value] = ByteLRU(capacity_bytes, count_bytes=count_bytes)
        self._pending: dict[Key, Future[Value]] = {}
        self._hits = self._misses = 0

    def read(self, keys: Sequence[Key]) -> list[Value]:
        """The values of keys, from memory if they are held."""
        values: dict[Key, Value] = {}
        awaited: dict[Key, Future[Value]] = {}
        to_read: dict[Key, Future[Value]] = {}
        with self._lock:
            for key in dict.fromkeys(keys):
                if (value := self._held.get(key)) is not None:
                    values[key] = value
                elif key in self._pending:
                    awaited[key] = self._pending[key]
                else:
                    to_read[key] = self._pending[key] = Future()
            self._hits += len(values) + len(awaited)
            self._misses += len(to_read)
        if to_read:
            values |= self._read(to_read)
        values |= {key: future.result() for key, future in awaited.items()}
        return [values[key] for key in keys]

    def counts(self) -> CacheCounts:
        """Hits, misses and what is held now."""
        with self._lock:
            return CacheCounts(self._hits, self._misses, *self._held.size())

    def _read(self, to_read: dict[Key, Future[Value]]) -> dict[Key, Value]:
        try:
            values = dict(zip(to_read, self._read_missing(list(to_read)), strict=True))
        except BaseException as error:
            with self._lock:
                for key, future in to_read.items():
                    del self._pending[key]
                    future.set_exception(error)
            raise
        with self._lock:
            for key, value in values.items():
                self._held.put(key, value)
                del self._pending[key]
        for key, future in to_read.items():
            future.set_result(values[key])
        return values
