"""How much faster a query over stored pages is than a full pass over each of them.

    python -m benchmarks.shallow_speed --out results/shallow_speed.json

A random Qwen2.5-VL of 119 million parameters (28 layers, key and value width 4 x 128), 20 pages of 768
visual positions, a suffix of 32 tokens, exit layer 21, a third of the visual positions kept, int8. The
pages are packed as the store packs them and run as a request runs them. The baseline is the library's own
forward, one page at a time or five at once, whichever is faster. Runs are interleaved and medians compared,
so that whatever else the machine does falls on all alike.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.profiler import ProfilerActivity, profile
from transformers import Qwen2_5_VLForConditionalGeneration

from benchmarks.report import publish
from benchmarks.small_qwen import small_qwen
from ridgerank.backbones.qwen2_5_vl import Qwen25VL
from ridgerank.store.compress import compress
from ridgerank.store.layout import pack, unpack
from ridgerank.store.pruning import Keep
from ridgerank.store.stored_prefixes import StoredPrefixes

PAGES, EXIT_LAYER, SUFFIX = 20, 21, 32
PAGE_SIZE = (896, 672)
"""32 x 24 cells of 28 pixels: 768 visual positions."""
BARS = {0: 30.0, 14: 70.0}
"""Ratio to reach, by join layer."""


def stored(backbone: Qwen25VL, images: Sequence[Image.Image], *, join_layer: int) -> StoredPrefixes:
    """Pages as a request finds them: encoded, compressed, packed into bytes and seen in them."""
    blocks = []
    for image in images:
        [prefix] = backbone.encode([image], exit_layer=EXIT_LAYER, join_layer=join_layer)
        blocks.append(pack(compress(prefix, image, Keep())))
    return StoredPrefixes.of([unpack(block) for block in blocks], join_layer=join_layer)


def full_passes(
    backbone: Qwen25VL, model: Qwen2_5_VLForConditionalGeneration, images: Sequence[Image.Image], query: str
) -> tuple[Callable[[], object], Callable[[], object]]:
    """Make the library's forward over these pages: with the vision tower, and from ready embeddings."""
    pages = backbone._tokenize_pages(images)
    suffix = torch.tensor(backbone.tokens.suffix(query))
    ids = torch.stack([torch.cat([page.ids, suffix]) for page in pages])
    pixels = backbone._image_processor(images=list(images), return_tensors="pt")
    types = (ids == model.config.image_token_id).int()
    positions, _ = model.model.get_rope_index(ids, types, pixels["image_grid_thw"])
    embeddings = model.model.language_model.embed_tokens(ids)

    def seeing() -> object:
        return model(
            input_ids=ids, mm_token_type_ids=types, **pixels, use_cache=False, logits_to_keep=1
        ).logits

    def blind() -> object:
        text = model.model.language_model
        hidden = text(inputs_embeds=embeddings, position_ids=positions, use_cache=False)[0]
        return model.lm_head(hidden[:, -1])

    return seeing, blind


def operations(join_layer: int, positions: int, kept: int) -> float:
    """Divide the multiplications of 20 full passes by those of a shallow pass: products and attention."""
    weights = 4 * 512 * 512 + 3 * 512 * 2048
    full = PAGES * 28 * positions * (weights + 512 * (positions + 1))
    joined = SUFFIX * (weights + 2 * 512 * (kept + SUFFIX / 2)) * (EXIT_LAYER - 1 - join_layer)
    last = SUFFIX * 2 * 512 * 512 + (weights - 2 * 512 * 512) + 2 * 512 * (kept + SUFFIX)
    alone = join_layer * SUFFIX * (weights + 512 * SUFFIX)
    return full / (PAGES * (joined + last) + alone)


def shares(run: Callable[[], object]) -> dict[str, float]:
    """Find where the time of a run goes, by kind of operation: of five, the one least disturbed."""
    profiles = []
    for _ in range(5):
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            run()
        events = profiler.key_averages()
        profiles.append((sum(event.self_cpu_time_total for event in events), events))
    total, events = min(profiles, key=lambda pair: pair[0])
    kinds = {"mm": "products", "addmm": "products", "copy_": "copies and int8 to float"}
    kinds |= {"_scaled_dot_product_flash_attention_for_cpu": "attention"}
    times: dict[str, float] = {}
    for event in events:
        kind = kinds.get(event.key.removeprefix("aten::"), "elementwise and the rest")
        times[kind] = times.get(kind, 0.0) + event.self_cpu_time_total
    return {kind: round(part / total, 3) for kind, part in sorted(times.items(), key=lambda kv: -kv[1])}


def main() -> None:
    """Measure, print a table, then one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()

    backbone, model = small_qwen(layers=28, width=512, head_dim=128, max_pixels=896 * 672)
    rng = np.random.default_rng(0)
    shape = (PAGE_SIZE[1], PAGE_SIZE[0], 3)
    images = [Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)) for _ in range(PAGES)]
    query = "x" * (SUFFIX - len(backbone.tokens.suffix("")))
    with torch.inference_mode():
        single, single_blind = full_passes(backbone, model, images[:1], query)
        five, _ = full_passes(backbone, model, images[:5], query)
    runs: dict[str, tuple[int, Callable[[], object]]] = {
        "full, one page": (20, single),
        "full, five pages": (4, five),
        "full without vision, one page": (20, single_blind),
    }
    batches = {join_layer: stored(backbone, images, join_layer=join_layer) for join_layer in BARS}
    for join_layer, batch in batches.items():
        runs[f"shallow, join layer {join_layer}"] = (1, partial(backbone.states, query, batch))
    kept = int(batches[0].lengths[0])
    [page] = backbone._tokenize_pages(images[:1])
    positions = len(page.ids) + SUFFIX

    seconds: dict[str, list[float]] = {name: [] for name in runs}
    with torch.inference_mode():
        for turn in range(options.rounds + 1):
            for name, (times, run) in runs.items():
                start = time.perf_counter()
                run()
                if turn:  # the first turn warms up
                    seconds[name].append(times * (time.perf_counter() - start))
        where = {str(m): shares(runs[f"shallow, join layer {m}"][1]) for m in BARS}

    medians = {name: statistics.median(values) for name, values in seconds.items()}
    full = min(medians["full, one page"], medians["full, five pages"])
    blind = medians["full without vision, one page"]
    for name, value in medians.items():
        spread = max(seconds[name]) / min(seconds[name])
        print(f"{name:34} {full / value:8.1f}x   (slowest / fastest run {spread:.2f})")
    publish(
        {
            "ratio": {str(m): round(full / medians[f"shallow, join layer {m}"], 1) for m in BARS},
            "bar": {str(m): bar for m, bar in BARS.items()},
            "ratio_without_vision": {
                str(m): round(blind / medians[f"shallow, join layer {m}"], 1) for m in BARS
            },
            "operations_allow": {str(m): round(operations(m, positions, kept), 1) for m in BARS},
            "time_shares": where,
            "shape": {"positions": positions, "kept": kept, "suffix": SUFFIX, "pages": PAGES},
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
        },
        options.out,
    )


if __name__ == "__main__":
    main()
