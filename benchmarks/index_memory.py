"""Indexing does not hold a corpus: peak memory over 2,000 generated pages, beside the model alone.

    python -m benchmarks.index_memory [--pages 2000] [--out results/index_memory.json]

A random Qwen2.5-VL of the size of the miniature, pages of some 250 visual positions, real PDF files.
Rendering processes are counted with the process that encodes.
"""

import argparse
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
from PIL import Image, ImageDraw

from benchmarks.report import publish
from benchmarks.small_qwen import small_qwen
from ridgerank.documents.outcomes import Failure
from ridgerank.indexing import IndexPlan, index_documents
from ridgerank.store.read import PageStore

BAR_MIB = 1024
PAGES_PER_FILE = 40
MAX_PIXELS = 252 * 28 * 28


class PeakMemory:
    """The largest resident memory of this process and its children, looked at ten times a second."""

    def __init__(self) -> None:
        self.peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        own = psutil.Process()
        while not self._stop.wait(0.1):
            total = 0
            for process in [own, *own.children(recursive=True)]:
                try:
                    memory = process.memory_info()
                except psutil.NoSuchProcess:
                    continue
                total += memory.rss - memory.shared
            self.peak = max(self.peak, total)

    def __enter__(self) -> "PeakMemory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


class Counter:
    """Prints a line now and then."""

    def __init__(self) -> None:
        self.pages = 0

    def planned(self, plan: IndexPlan) -> None:
        """Say how much there is to do."""
        print(f"{plan.pages} pages to index", flush=True)

    def committed(self, pages: int, nbytes: int) -> None:
        """Count."""
        del nbytes
        if (self.pages + pages) // 500 > self.pages // 500:
            print(f"{self.pages + pages} pages done", flush=True)
        self.pages += pages

    def failed(self, failure: Failure) -> None:
        """Generated files are all readable."""
        raise RuntimeError(str(failure))


def draw_documents(folder: Path, pages: int) -> None:
    """PDF files of distinct pages with bars and a caption."""
    generator = np.random.default_rng(0)
    for start in range(0, pages, PAGES_PER_FILE):
        images = []
        for number in range(start, min(start + PAGES_PER_FILE, pages)):
            image = Image.new("RGB", (595, 842), "white")
            draw = ImageDraw.Draw(image)
            draw.text((60, 60), f"Report page {number + 1}", fill="black", font_size=30)
            for place, height in enumerate(generator.integers(50, 500, 12).tolist()):
                draw.rectangle((60 + 40 * place, 780 - height, 90 + 40 * place, 780), fill="steelblue")
            images.append(image)
        images[0].save(folder / f"report-{start:05}.pdf", save_all=True, append_images=images[1:])


def main() -> None:
    """Index generated pages and compare peak memory with that of the loaded model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=2000)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    backbone, _ = small_qwen(layers=8, width=192, head_dim=64, max_pixels=MAX_PIXELS)
    own = psutil.Process().memory_info()
    model = own.rss - own.shared
    with tempfile.TemporaryDirectory() as folder:
        documents, store = Path(folder, "documents"), Path(folder, "store")
        documents.mkdir()
        draw_documents(documents, arguments.pages)
        start = time.perf_counter()
        with PeakMemory() as memory:
            report = index_documents([documents], str(store), backbone, watcher=Counter())
        seconds = time.perf_counter() - start
        with PageStore.open(str(store)) as opened:
            info = opened.info()
    above = (memory.peak - model) / 2**20
    print(
        f"{report.added} pages, {info.bytes_per_page / 1e6:.2f} MB each, {report.added / seconds:.1f} pages/s"
    )
    print(f"peak memory above the loaded model: {above:.0f} MiB (bar: at most {BAR_MIB})")
    publish(
        {
            "pages": report.added,
            "bytes_per_page": round(info.bytes_per_page),
            "store_mib": round(info.prefix_bytes / 2**20),
            "peak_above_model_mib": round(above),
            "bar_mib": BAR_MIB,
        },
        arguments.out,
    )


if __name__ == "__main__":
    main()
