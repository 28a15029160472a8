"""How fast K random prefixes come off a warm disk: ours, an mmap copy of the same bytes, Lance's own way.

`python -m benchmarks.store_read --out results/store_read.json` prints a table, then one line of JSON.
Repetitions are interleaved and each draws other pages, so that neither drift nor luck favours one.
"""

import argparse
import json
import mmap
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import lance
import numpy as np

from ridgerank.atomic import replace_text_file
from ridgerank.lineage import Lineage
from ridgerank.store import layout
from ridgerank.store.layer_stream import LayerStream
from ridgerank.store.layout import PackedPrefix
from ridgerank.store.page_store import PageStore
from ridgerank.store.prefix_readers import LocalBlockReader
from ridgerank.store.rows import PageRow, StoredPage
from ridgerank.store.store_writer import StoreWriter

PAGES, CANDIDATES, BATCH, REPETITIONS = 100, 20, 10, 41
LAYERS, KV_HEADS, POSITIONS, HEAD_DIM = 21, 4, 256, 128
"""A third of 768 visual positions of Qwen2.5-VL-7B: 5.5 MB a page."""
MANY, MANY_BATCH = 100_000, 10_000


def page_row(number: int, layers: int, positions: int, random: np.random.Generator) -> PageRow:
    """Make a page of random bytes."""
    shape = (layers, KV_HEADS, positions, HEAD_DIM)
    prefix = PackedPrefix(
        keys=random.integers(-127, 128, shape, dtype=np.int8),
        values=random.integers(-127, 128, shape, dtype=np.int8),
        key_scales=np.ones((layers, KV_HEADS, HEAD_DIM), dtype=np.uint16),
        value_scales=np.ones((layers, KV_HEADS, positions), dtype=np.uint16),
        positions=np.arange(positions, dtype=np.int32),
        visual=np.ones(positions, dtype=np.bool_),
        next_position=positions,
        grid=(1, positions),
    )
    page = StoredPage(
        f"{number:064x}", (f"report.pdf#{number + 1}",), "source", "some text " * 20, bytes(200)
    )
    return PageRow(page, prefix)


def build(uri: str, pages: int, batch: int, *, layers: int, positions: int) -> None:
    """Write a store of `pages`."""
    random = np.random.default_rng(0)
    lineage = Lineage("random", "-", "-", "-", "-", "-", layers, 0, "stride 1/3", "int8")
    with StoreWriter(uri, lineage) as writer:
        for first in range(0, pages, batch):
            writer.append([page_row(first + k, layers, positions, random) for k in range(batch)])


def measure_reads(uri: str) -> dict[str, float]:
    """Median milliseconds for K random prefixes, by way of reading."""
    with PageStore.open(uri) as store:
        ids = store.page_ids()
        out = np.zeros(store.prefix_nbytes(ids[:CANDIDATES]), dtype=np.uint8)
        dataset = lance.dataset(uri)
        assert isinstance(store.blocks, LocalBlockReader)
        location_of = {entry.page_id: entry.prefix_range for entry in store.catalog.entries(ids)}
        row_of = {page_id: row for row, page_id in enumerate(ids)}
        paths = {location.address >> 32: store.blocks.file(location) for location in location_of.values()}
        maps = {
            fragment: np.frombuffer(_mapped(path), dtype=np.uint8)
            for fragment, path in paths.items()
            if path is not None
        }

        def mmap_copy(page_ids: Sequence[str]) -> None:
            start = 0
            for address, offset, nbytes in (location_of[page_id] for page_id in page_ids):
                out[start : start + nbytes] = maps[address >> 32][offset : offset + nbytes]
                start += nbytes

        def ours(page_ids: Sequence[str]) -> None:
            store.read_prefixes(page_ids, out=out)

        def by_layers(page_ids: Sequence[str]) -> None:
            with LayerStream(store, page_ids, out=out) as stream:
                stream.wait(LAYERS - 1)

        def take_blobs(page_ids: Sequence[str]) -> None:
            start = 0
            for blob in dataset.take_blobs(layout.PREFIX, indices=[row_of[page_id] for page_id in page_ids]):
                content = np.frombuffer(blob.read(), dtype=np.uint8)
                out[start : start + content.size] = content
                start += content.size

        ways: dict[str, Callable[[Sequence[str]], None]] = {
            "mmap_copy": mmap_copy,
            "ours": ours,
            "ours_by_layers": by_layers,
            "take_blobs": take_blobs,
        }
        _require_equal(ways, ids[:CANDIDATES], out)
        chance = np.random.default_rng(1)
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(REPETITIONS):
            for name, read in ways.items():
                page_ids = [ids[k] for k in chance.choice(len(ids), CANDIDATES, replace=False)]
                began = time.perf_counter()
                read(page_ids)
                times[name].append(1e3 * (time.perf_counter() - began))
        return {name: statistics.median(runs) for name, runs in times.items()}


def measure_opening(uri: str) -> dict[str, float]:
    """Seconds until a store of many pages is open, and until its first prefix has been read."""
    began = time.perf_counter()
    with PageStore.open(uri) as store:
        opened = time.perf_counter()
        store.read_prefixes([f"{MANY // 2:064x}"])
        return {"open_s": opened - began, "first_read_s": time.perf_counter() - began}


def main() -> None:
    """Measure, print, and write the figures to `--out`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        build(f"{folder}/wide", PAGES, BATCH, layers=LAYERS, positions=POSITIONS)
        with PageStore.open(f"{folder}/wide") as store:
            page_nbytes = store.info().bytes_per_page
        median_ms = measure_reads(f"{folder}/wide")
        build(f"{folder}/many", MANY, MANY_BATCH, layers=1, positions=1)
        opening = measure_opening(f"{folder}/many")
    speeds = {name: CANDIDATES * page_nbytes / elapsed_ms / 1e6 for name, elapsed_ms in median_ms.items()}
    ratios = {name: speed / speeds["mmap_copy"] for name, speed in speeds.items()}
    print(f"{CANDIDATES} random prefixes of {page_nbytes / 1e6:.2f} MB out of {PAGES} pages, warm")
    for name, elapsed_ms in median_ms.items():
        print(f"{name:16}{elapsed_ms:9.2f} ms{speeds[name]:9.2f} GB/s{ratios[name]:8.2f} of mmap")
    print(
        f"{MANY} pages: open in {opening['open_s']:.3f} s, first prefix after {opening['first_read_s']:.3f} s"
    )
    result = {
        "benchmark": "store_read",
        "machine": f"{platform.machine()}, {platform.system()}",
        "pages": PAGES,
        "candidates": CANDIDATES,
        "page_nbytes": page_nbytes,
        "median_ms": median_ms,
        "gb_per_s": speeds,
        "ratio_to_mmap_copy": ratios,
        "pages_when_opening": MANY,
        **opening,
    }
    line = json.dumps(result)
    print(line)
    if arguments.out is not None:
        with replace_text_file(arguments.out) as file:
            file.write(line + "\n")


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)


def _require_equal(
    ways: dict[str, Callable[[Sequence[str]], None]],
    page_ids: Sequence[str],
    out: np.ndarray[tuple[int], np.dtype[np.uint8]],
) -> None:
    contents = set()
    for read in ways.values():
        out[:] = 0
        read(page_ids)
        contents.add(out.tobytes())
    if len(contents) != 1:
        raise SystemExit("the ways of reading differ in what they read")


if __name__ == "__main__":
    main()
