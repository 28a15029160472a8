"""How fast K random prefixes come off a disk: ours, an mmap copy of the same bytes, Lance's own way.

`python -m benchmarks.store_read --out results/store_read.json` prints a table, then one line of JSON.
Repetitions are interleaved and each draws other pages, so that neither drift nor luck favours one. Pages are
of the size that Qwen2.5-VL-7B makes of 1,280 visual positions, in both presets. The system has all of them in
memory, but for `cold_ms`: there it was told to forget them before every repetition.
"""

import argparse
import mmap
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lance
import numpy as np
import torch

from benchmarks.report import publish
from ridgerank.lineage import Lineage
from ridgerank.store import layout
from ridgerank.store.compress import quantize
from ridgerank.store.layer_stream import LayerStream
from ridgerank.store.layout import PackedPrefix
from ridgerank.store.page_store import PageStore
from ridgerank.store.prefix_readers import LocalBlockReader
from ridgerank.store.rows import PageRow, StoredPage
from ridgerank.store.storage_setting import STORAGE_PRESETS, StoragePreset, StorageSetting
from ridgerank.store.store_writer import StoreWriter

PAGES, CANDIDATES, BATCH, REPETITIONS = 100, 20, 10, 41
LAYERS, KV_HEADS, VISUAL, HEAD_DIM = 21, 4, 1280, 128
MANY, MANY_BATCH = 100_000, 10_000


def page_row(number: int, prefix: PackedPrefix) -> PageRow:
    """A page of this name."""
    page = StoredPage(
        f"{number:064x}", (f"report.pdf#{number + 1}",), "source", "some text " * 20, bytes(200)
    )
    return PageRow(page, prefix)


def random_prefix(
    random: np.random.Generator, setting: StorageSetting, *, layers: int, visual: int
) -> PackedPrefix:
    """A page of random numbers, kept and rounded by a setting."""
    kept = setting.keep.count(visual)
    keys, values = torch.from_numpy(
        random.standard_normal((2, layers, KV_HEADS, kept, HEAD_DIM), dtype=np.float32)
    )
    return PackedPrefix(
        **quantize(keys, values, setting.numbers),
        positions=np.arange(kept, dtype=np.int32),
        visual=np.ones(kept, dtype=np.bool_),
        next_position=visual,
        grid=(1, visual),
        numbers=setting.numbers,
        shared=None,
    )


def build(
    uri: str, pages: int, batch: int, *, layers: int, visual: int, preset: StoragePreset = "paper"
) -> None:
    """Write a store of `pages`; those of a batch differ."""
    setting = StorageSetting.from_preset(preset, layers=28, reads_text=False)
    random = np.random.default_rng(0)
    prefixes = [random_prefix(random, setting, layers=layers, visual=visual) for _ in range(min(batch, 10))]
    bits = setting.numbers
    facts = ("random", "-", "-", "-", "-", "-", layers, 0, str(setting.keep), "any")
    lineage = Lineage(*facts, key_bits=bits.key_bits, value_bits=bits.value_bits, number_group=bits.group)
    with StoreWriter(uri, lineage) as writer:
        for first in range(0, pages, batch):
            writer.append([page_row(first + k, prefixes[k % len(prefixes)]) for k in range(batch)])


def measure_reads(uri: str) -> dict[str, float]:
    """Median milliseconds for K random prefixes, by way of reading."""
    with PageStore.open(uri) as store:
        ids = store.page_ids()
        out = np.zeros(store.prefix_nbytes(ids[:CANDIDATES]), dtype=np.uint8)
        dataset = lance.dataset(uri)
        assert isinstance(store.blocks, LocalBlockReader)
        location_of = {entry.page_id: entry.prefix_range for entry in store.catalog.entries(ids)}
        row_of = {page_id: row for row, page_id in enumerate(ids)}
        paths = {location.fragment: store.blocks.file(location) for location in location_of.values()}
        maps = {
            fragment: np.frombuffer(_mapped(path), dtype=np.uint8)
            for fragment, path in paths.items()
            if path is not None
        }

        def mmap_copy(page_ids: Sequence[str]) -> None:
            start = 0
            for location in (location_of[page_id] for page_id in page_ids):
                end = start + location.nbytes
                out[start:end] = maps[location.fragment][location.offset : location.offset + location.nbytes]
                start = end

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


def measure_cold_read(uri: str) -> float:
    """Median milliseconds for K random prefixes that the system has not in its memory."""
    files = sorted(Path(uri, "data").iterdir())
    chance, times = np.random.default_rng(2), []
    with PageStore.open(uri, mapped=False) as store:
        ids = store.page_ids()
        out = np.zeros(store.prefix_nbytes(ids[:CANDIDATES]), dtype=np.uint8)
        for _ in range(REPETITIONS):
            for file in files:
                _forget(file)
            page_ids = [ids[k] for k in chance.choice(len(ids), CANDIDATES, replace=False)]
            began = time.perf_counter()
            store.read_prefixes(page_ids, out=out)
            times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times)


def _forget(path: Path) -> None:
    """Have the system drop what it keeps of a file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


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
        presets = {preset: measure_preset(f"{folder}/{preset}", preset) for preset in STORAGE_PRESETS}
        build(f"{folder}/many", MANY, MANY_BATCH, layers=1, visual=1)
        opening = measure_opening(f"{folder}/many")
    print(
        f"{MANY} pages: open in {opening['open_s']:.3f} s, first prefix after {opening['first_read_s']:.3f} s"
    )
    result = {"pages": PAGES, "candidates": CANDIDATES, "presets": presets, "pages_when_opening": MANY}
    publish(result | opening, arguments.out)


def measure_preset(uri: str, preset: StoragePreset) -> dict[str, Any]:
    """Milliseconds and speeds of every way of reading pages of this preset, printed as a table."""
    build(uri, PAGES, BATCH, layers=LAYERS, visual=VISUAL, preset=preset)
    with PageStore.open(uri) as store:
        page_nbytes = store.info().bytes_per_page
    cold_ms = measure_cold_read(uri)
    median_ms = measure_reads(uri)
    speeds = {name: CANDIDATES * page_nbytes / elapsed_ms / 1e6 for name, elapsed_ms in median_ms.items()}
    ratios = {name: speed / speeds["mmap_copy"] for name, speed in speeds.items()}
    print(f"{preset}: {CANDIDATES} random prefixes of {page_nbytes / 1e6:.2f} MB out of {PAGES} pages, warm")
    for name, elapsed_ms in median_ms.items():
        print(f"{name:16}{elapsed_ms:9.2f} ms{speeds[name]:9.2f} GB/s{ratios[name]:8.2f} of mmap")
    print(f"{'cold':16}{cold_ms:9.2f} ms{CANDIDATES * page_nbytes / cold_ms / 1e6:9.2f} GB/s")
    return {
        "page_nbytes": page_nbytes,
        "median_ms": median_ms,
        "gb_per_s": speeds,
        "ratio_to_mmap_copy": ratios,
        "cold_ms": cold_ms,
    }


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
