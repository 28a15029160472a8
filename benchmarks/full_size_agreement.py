"""How far bfloat16 and float32 order pages alike: full-depth margins of two models, each in both.

One has the widths of Qwen2.5-VL-3B, random weights and few layers, so that float32 fits into memory;
the other is `mini-qwen`, whose trained margins lie further apart.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw

from benchmarks.full_size_model import write_checkpoint
from ridgerank.backbones.dense_prefixes import DensePrefixes
from ridgerank.backbones.load import load_backbone
from ridgerank.ragged import Floats

LAYERS = 6
PAGES = 8
QUERIES = tuple(
    f"{word} in the third quarter" for word in ("revenue", "water", "patents", "risk", "tax", "lease")
)
MAX_PIXELS = 64 * 28 * 28


def compare_dtypes(configuration: Path, work: Path) -> list[dict[str, Any]]:
    """For each model: shares of pairs of pages in the same order and of queries with the same first page."""
    cut = work / f"qwen2.5-vl-3b-{LAYERS}-layers"
    write_checkpoint(configuration, cut, {"num_hidden_layers": LAYERS})
    rows = []
    for name, label in (
        (str(cut), f"3B widths, {LAYERS} layers, random"),
        ("mini-qwen", "mini-qwen, trained"),
    ):
        half, whole = (_margins(name, dtype) for dtype in (torch.bfloat16, torch.float32))
        rows.append({"model": label, "pages": PAGES, "queries": len(QUERIES), **agreement(half, whole)})
    return rows


def agreement(half: Floats, whole: Floats) -> dict[str, float]:
    """Of margins (queries, pages) in two dtypes: pairs ordered alike, first pages alike, relative error."""
    first, second = np.triu_indices(half.shape[1], k=1)
    same = np.sign(half[:, first] - half[:, second]) == np.sign(whole[:, first] - whole[:, second])
    spread = (whole - whole.mean(axis=1, keepdims=True)).std()
    return {
        "same_order": round(float(same.mean()), 4),
        "same_first": round(float((half.argmax(axis=1) == whole.argmax(axis=1)).mean()), 4),
        "error_of_spread": round(float((half - whole).std() / spread), 4),
    }


def _margins(name: str, dtype: torch.dtype) -> Floats:
    """Margins (queries, pages) at full depth."""
    pixels = None if name == "mini-qwen" else MAX_PIXELS
    backbone = load_backbone(name, device="cpu", dtype=dtype, max_pixels=pixels)
    pages = DensePrefixes(backbone.encode(_draw_pages(), exit_layer=backbone.geometry.layers))
    rows = [backbone.targets([query], pages, targets=("margin",))["margin"].tolist() for query in QUERIES]
    return np.array(rows)


def _draw_pages() -> list[Image.Image]:
    generator = np.random.default_rng(0)
    pages = []
    for number in range(PAGES):
        page = Image.new("RGB", (224, 224), "white")
        draw = ImageDraw.Draw(page)
        draw.text((10, 10), f"Report {number}", fill="black")
        for bar, height in enumerate(generator.integers(10, 180, 6).tolist()):
            draw.rectangle((10 + 34 * bar, 214 - height, 34 + 34 * bar, 214), fill="navy")
        pages.append(page)
    return pages
