"""Indexing does not hold a corpus: peak memory over 2,000 generated pages, beside the model alone.

    python -m benchmarks.index_memory [--pages 2000] [--out results/index_memory.json]

A random Qwen2.5-VL of the size of the miniature, pages of some 250 visual positions, real PDF files, the
command as people type it. Rendering processes are counted with the one that encodes.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
from PIL import Image, ImageDraw

from benchmarks.report import publish
from benchmarks.small_qwen import small_qwen
from ridgerank.store.page_store import PageStore

BAR_MIB = 1024
PAGES_PER_FILE = 40
MAX_PIXELS = 252 * 28 * 28


def peak_memory(command: list[str]) -> int:
    """The largest private memory, in bytes, of a command and its children, looked at ten times a second."""
    process = psutil.Popen(command)
    peak = 0
    while process.poll() is None:
        total = 0
        with contextlib.suppress(psutil.NoSuchProcess):
            for member in [process, *process.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    memory = member.memory_info()
                    total += memory.rss - memory.shared
        peak = max(peak, total)
        time.sleep(0.1)
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}")
    return peak


def save_model(folder: Path) -> None:
    """A random model as a hub folder."""
    backbone, model = small_qwen(layers=8, width=192, head_dim=64, max_pixels=MAX_PIXELS)
    model.save_pretrained(folder)
    backbone._tokenizer.save_pretrained(folder)
    backbone._image_processor.save_pretrained(folder)


def draw_documents(folder: Path, pages: int) -> None:
    """PDF files of distinct pages with bars and a caption."""
    generator = np.random.default_rng(0)
    for start in range(0, pages, PAGES_PER_FILE):
        images = []
        for number in range(start, min(start + PAGES_PER_FILE, pages)):
            image = Image.new("RGB", (595, 842), "white")
            draw = ImageDraw.Draw(image)
            draw.text((60, 60), f"Report page {number + 1}", fill="black", font_size=30)
            for bar, height in enumerate(generator.integers(50, 500, 12).tolist()):
                draw.rectangle((60 + 40 * bar, 780 - height, 90 + 40 * bar, 780), fill="steelblue")
            images.append(image)
        images[0].save(folder / f"report-{start:05}.pdf", save_all=True, append_images=images[1:])


def main() -> None:
    """Index generated pages and compare peak memory with that of the loaded model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=2000)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        model, documents, store = (Path(scratch, name) for name in ("model", "documents", "store"))
        documents.mkdir()
        save_model(model)
        draw_documents(documents, arguments.pages)
        load = (
            f"import time; from ridgerank.backbones.load import load_backbone; load_backbone({str(model)!r})"
        )
        alone = peak_memory([sys.executable, "-c", f"{load}; time.sleep(2)"])
        index = ["index", str(documents), "--store", str(store), "--backbone", str(model)]
        index += ["--max-pixels", str(MAX_PIXELS), "--preset", "paper"]
        start = time.perf_counter()
        peak = peak_memory([sys.executable, "-m", "ridgerank.cli.main", *index])
        seconds = time.perf_counter() - start
        with PageStore.open(str(store)) as opened:
            info = opened.info()
    above = (peak - alone) / 2**20
    print(f"{info.pages} pages, {info.bytes_per_page / 1e6:.2f} MB each, {info.pages / seconds:.1f} pages/s")
    print(f"peak memory above the loaded model: {above:.0f} MiB (bar: at most {BAR_MIB})")
    publish(
        {
            "pages": info.pages,
            "bytes_per_page": round(info.bytes_per_page),
            "store_mib": round(info.prefix_bytes / 2**20),
            "peak_above_model_mib": round(above),
            "bar_mib": BAR_MIB,
        },
        arguments.out,
    )


if __name__ == "__main__":
    main()
