"""What one, a hundred and a thousand million pages take: bytes, GPU hours, bandwidth, caches, replicas.

    python -m benchmarks.scale_arithmetic     writes results/scale.json and docs/scale.png

Bytes are those of the store's layout, exactly. GPU times are the paper's, on one A100 of 40 GiB: 56 ms of
computing a query (Qwen2.5-VL-7B) or 50 ms (GLM-4.1V-9B), and 6.7 s for twenty pages at full depth, which is
more than indexing a page to layer 21 takes. They were not measured here. Hit rates are `read_path.py`'s.
"""

import argparse
import math
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

from benchmarks.read_path import hit_rate, simulated_hit_rate
from benchmarks.report import publish
from ridgerank.store.number_format import NumberFormat
from ridgerank.store.page_bytes import count_page_bytes
from ridgerank.store.pruning import Keep
from ridgerank.store.sizing import MODELS as SHAPES
from ridgerank.store.storage_setting import STORAGE_PRESETS, StoragePreset, StorageSetting

SIZES = {"1 M": 10**6, "100 M": 10**8, "1 B": 10**9}
MODELS = {"Qwen2.5-VL-7B": 0.056, "GLM-4.1V-9B": 0.050}
"""The paper's seconds of computing a query."""
EXIT_LAYER, JOIN_LAYER = 21, 14
CANDIDATES = 20
PAGE_SECONDS = 6.7 / 20
"""A page at full depth, the paper's A100: an upper bound for a page to layer 21."""
VECTOR_BYTES = 196_000
"""A page's vectors of ColNomic-7B."""
QUERIES_A_SECOND, BUSY = 100, 0.7
"""What is to be served, and how busy a replica may be."""
MEMORY_GB, DISK_GB = 64, 4000
"""Of one replica: pages in memory, and on its local disk."""
EXPONENTS = (0.6, 0.8, 1.0, 1.2)
CHECKED_PAGES, CHECKED_REQUESTS = 50_000, 400_000


LARGE_MODELS = ("Qwen2.5-VL-7B", "Qwen2-VL-2B", "GLM-4.1V-9B", "Qwen3-VL-8B")
"""Of 1,280 visual positions a page."""
SMALL = {
    "stride 1/3, 8 bits, layer 21 (the paper's)": ("stride 1/3", "8", 21),
    "value-norm 1/5, 3/2 bits, layer 21": ("value-norm 1/5", "3/2", 21),
    "value-norm 1/5, 3/1 bits, layer 21": ("value-norm 1/5", "3/1", 21),
    "value-norm 1/5, 3/1 bits, layer 18": ("value-norm 1/5", "3/1", 18),
    "value-norm 1/8, 3/1 bits, layer 18": ("value-norm 1/8", "3/1", 18),
    "value-norm 1/5, 3/1 bits, layer 12": ("value-norm 1/5", "3/1", 12),
}
"""Kept, bits, exit layer; `benchmarks.compression` measures what some of them cost."""


def page_bytes(model: str, *, keep: str = "stride 1/3", join_layer: int = 0) -> int:
    """Bytes of a page's prefix as the paper stores it, but for the positions and layers."""
    setting = StorageSetting(Keep.parse(keep), NumberFormat(), EXIT_LAYER)
    return count_page_bytes(SHAPES[model.lower()], setting, join_layer=join_layer)


def small_page_bytes(model: str, keep: str, bits: str, exit_layer: int) -> int:
    """Bytes of a page's prefix in any setting, to the byte of the layout."""
    setting = StorageSetting(Keep.parse(keep), NumberFormat.parse(bits), exit_layer)
    return count_page_bytes(SHAPES[model.lower()], setting)


def main() -> None:
    """Compute, print tables, write both files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("results/scale.json"))
    parser.add_argument("--figure", type=Path, default=Path("docs/scale.png"))
    options = parser.parse_args()
    result: dict[str, Any] = {
        "sizes": {
            name: {
                model: {preset: plan(pages, model, preset) for preset in STORAGE_PRESETS} for model in MODELS
            }
            for name, pages in SIZES.items()
        },
        "page_bytes": {model: variants(model) for model in MODELS},
        "small_pages": {
            setting: {model: round(small_page_bytes(model, *parts) / 1e6, 2) for model in LARGE_MODELS}
            for setting, parts in SMALL.items()
        },
        "hit_rates": {name: rates(pages) for name, pages in SIZES.items()},
        "simulated": checked(),
        "constants": {
            "page_seconds_a100": PAGE_SECONDS,
            "query_seconds_a100": MODELS,
            "memory_gb": MEMORY_GB,
            "disk_gb": DISK_GB,
            "queries_a_second": QUERIES_A_SECOND,
            "busy": BUSY,
            "candidates": CANDIDATES,
            "vector_bytes": VECTOR_BYTES,
        },
    }
    for name, models in result["sizes"].items():
        for model, presets in models.items():
            for preset, figures in presets.items():
                rounded = {key: round(value, 1) for key, value in figures.items()}
                print(f"{name:>6} {model:14} {preset:6}", rounded)
    draw(options.figure)
    publish(result, options.out)


def plan(pages: int, model: str, preset: StoragePreset) -> dict[str, float]:
    """What a corpus takes; traffic is Zipf of exponent 0.8 on replicas that each see all of it."""
    shape = SHAPES[model.lower()]
    setting = StorageSetting.from_preset(preset, layers=shape.layers, reads_text=False)
    nbytes = count_page_bytes(shape, setting)
    seconds = MODELS[model]
    replicas = math.ceil(QUERIES_A_SECOND * seconds / BUSY)
    in_memory = hit_rate(pages, MEMORY_GB * 1e9 / nbytes, 0.8)
    on_disk = hit_rate(pages, DISK_GB * 1e9 / nbytes, 0.8)
    read = QUERIES_A_SECOND * CANDIDATES * nbytes / 1e9
    return {
        "page_mb": nbytes / 1e6,
        "prefixes_tb": pages * nbytes / 1e12,
        "vectors_tb": pages * VECTOR_BYTES / 1e12,
        "gpu_hours": pages * PAGE_SECONDS / 3600,
        "query_mb": CANDIDATES * nbytes / 1e6,
        "read_gb_s": read,
        "replicas": replicas,
        "hit_memory": in_memory,
        "hit_disk": on_disk,
        "bucket_gb_s": read * (1 - max(in_memory, on_disk)),
        "bucket_requests_s": QUERIES_A_SECOND * CANDIDATES * (1 - max(in_memory, on_disk)),
    }


def variants(model: str) -> dict[str, float]:
    """Megabytes of a page: the paper's, and with fewer positions, a narrower band, fewer bits."""
    return {
        "all positions": page_bytes(model, keep="stride 1") / 1e6,
        "a third (the paper's)": page_bytes(model) / 1e6,
        "a sixth": page_bytes(model, keep="stride 1/6") / 1e6,
        "a third, layers 14 to 21": page_bytes(model, join_layer=JOIN_LAYER) / 1e6,
        "a sixth, layers 14 to 21": page_bytes(model, keep="stride 1/6", join_layer=JOIN_LAYER) / 1e6,
    }


def rates(pages: int) -> dict[str, dict[str, float]]:
    """Hit rates of a replica's memory and disk, by exponent, for Qwen's pages as the paper stores them."""
    nbytes = page_bytes("Qwen2.5-VL-7B")
    return {
        str(exponent): {
            "memory": round(hit_rate(pages, MEMORY_GB * 1e9 / nbytes, exponent), 4),
            "disk": round(hit_rate(pages, DISK_GB * 1e9 / nbytes, exponent), 4),
        }
        for exponent in EXPONENTS
    }


def checked() -> list[dict[str, float]]:
    """The approximation beside a cache that was asked."""
    rows = []
    for exponent in EXPONENTS:
        for cached in (500, 5000):
            told = simulated_hit_rate(CHECKED_PAGES, cached, exponent, requests=CHECKED_REQUESTS)
            rows.append(
                {
                    "exponent": exponent,
                    "cached": cached,
                    "simulated": round(told, 4),
                    "che": round(hit_rate(CHECKED_PAGES, cached, exponent), 4),
                }
            )
    return rows


def draw(path: Path) -> None:
    """Hit rate against the share of pages cached; what is left to read from a bucket as a corpus grows."""
    mpl.use("Agg")
    figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
    shares = [10 ** (k / 8) for k in range(-40, 1)]
    for exponent in EXPONENTS:
        rates = [100 * hit_rate(10**6, share * 10**6, exponent) for share in shares]
        axes[0].plot([100 * share for share in shares], rates, label=f"exponent {exponent}")
    axes[0].set(xscale="log", xlabel="cached, % of 1 M pages", ylabel="reads answered, %")
    axes[0].legend(frameon=False)
    sizes = [10 ** (k / 4) for k in range(20, 37)]
    for preset in STORAGE_PRESETS:
        traffic = [plan(int(pages), "Qwen2.5-VL-7B", preset)["bucket_gb_s"] for pages in sizes]
        axes[1].plot(sizes, traffic, label=f"preset {preset}")
    axes[1].set(xscale="log", xlabel="pages", ylabel="GB/s from the bucket, 100 queries/s")
    axes[1].legend(frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main()
