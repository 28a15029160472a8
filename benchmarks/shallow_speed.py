"""How much faster a query over stored pages is than a full pass over each of them.

    python -m benchmarks.shallow_speed --out results/shallow_speed.json

A random Qwen2.5-VL of 119 million parameters (28 layers, key and value width 4 x 128), 20 pages, exit layer
21, a third of the visual positions kept, int8, at three shapes: that of a real request (1,280 visual
positions, 15 tokens behind the page, which is what a question of four words makes with Qwen's tokenizer), the
same with a smaller page (744 positions) and with a longer question, too (768 and 32). The pages are packed as
the store packs them and run as a request runs them. The baseline is the library's own forward, one page at a
time or five at once, whichever is faster. Runs are interleaved and medians compared, so that whatever else
the machine does falls on all alike. It falls harder on short work in many small steps, so the fastest runs
are compared as well: what both take on a machine of their own. Pages of the preset `small`, packed to few
bits, run beside those of the paper: they may not be slower.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

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
from ridgerank.store.storage_setting import StoragePreset, StorageSetting
from ridgerank.store.stored_prefixes import StoredPrefixes

PAGES, LAYERS, EXIT_LAYER, WIDTH, CELL = 20, 28, 21, 512, 28
JOIN_LAYERS = (0, 7, 14)
"""0 is the paper's setting. Joining the page later is faster and costs ranking quality (`band_quality`)."""
_PAPER, _SMALL = "shallow, join layer 0", "shallow, preset small"


@dataclass(frozen=True, slots=True)
class RequestShape:
    """Cells of a page, each one visual position, and tokens behind the page."""

    name: str
    rows: int
    columns: int
    suffix: int


SHAPES = (
    RequestShape("real request", 40, 32, 15),
    RequestShape("smaller page", 24, 31, 15),
    RequestShape("long question", 24, 32, 32),
)


def stored(
    backbone: Qwen25VL, images: Sequence[Image.Image], *, preset: StoragePreset = "paper", join_layer: int = 0
) -> StoredPrefixes:
    """Pages as a request finds them: encoded, compressed, packed into bytes and seen in them."""
    setting = _setting(preset)
    blocks = []
    for image in images:
        [prefix] = backbone.encode([image], exit_layer=EXIT_LAYER, join_layer=join_layer)
        blocks.append(pack(compress(prefix, image, setting.keep, setting.numbers)))
    return StoredPrefixes.of([unpack(block) for block in blocks], join_layer=join_layer)


def _setting(preset: StoragePreset) -> StorageSetting:
    return StorageSetting.from_preset(preset, layers=LAYERS, reads_text=False)


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


def operations(join_layer: int, *, suffix: int, positions: int, kept: int) -> float:
    """Divide the multiplications of 20 full passes by those of a shallow pass: products and attention."""
    weights = 4 * WIDTH * WIDTH + 3 * WIDTH * 4 * WIDTH
    full = PAGES * LAYERS * positions * (weights + WIDTH * (positions + 1))
    joined = suffix * (weights + 2 * WIDTH * (kept + suffix / 2)) * (EXIT_LAYER - 1 - join_layer)
    last = suffix * 2 * WIDTH * WIDTH + (weights - 2 * WIDTH * WIDTH) + 2 * WIDTH * (kept + suffix)
    alone = join_layer * suffix * (weights + WIDTH * suffix)
    return full / (PAGES * (joined + last) + alone)


def time_shares(run: Callable[[], object]) -> dict[str, float]:
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


def time_in_turns(
    full: Mapping[str, tuple[int, Callable[[], object]]],
    shallow: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
) -> dict[str, list[float]]:
    """Seconds of each run, taken in turns; the first turn warms up.

    A full pass counts as many times as it says. Every shallow pass follows every full one: short runs need
    more repeats for a median as steady.
    """
    seconds: dict[str, list[float]] = {name: [] for name in (*full, *shallow)}

    def take(name: str, times: int, run: Callable[[], object]) -> None:
        start = time.perf_counter()
        run()
        seconds[name].append(times * (time.perf_counter() - start))

    with torch.inference_mode():
        for turn in range(rounds + 1):
            if turn == 1:
                for warming_up in seconds.values():
                    warming_up.clear()
            for name, (times, run) in full.items():
                take(name, times, run)
                for short, short_run in shallow.items():
                    take(short, 1, short_run)
    return seconds


def measure(shape: RequestShape, *, rounds: int) -> dict[str, Any]:
    """Time both ways at one shape and print the ratios."""
    height, width = CELL * shape.rows, CELL * shape.columns
    backbone, model = small_qwen(layers=LAYERS, width=WIDTH, head_dim=128, max_pixels=height * width)
    rng = np.random.default_rng(0)
    images = [Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)) for _ in range(PAGES)]
    padding = shape.suffix - len(backbone.tokens.suffix(""))
    query = "x" * padding
    with torch.inference_mode():
        single, single_blind = full_passes(backbone, model, images[:1], query)
        five, _ = full_passes(backbone, model, images[:5], query)
    full_runs: dict[str, tuple[int, Callable[[], object]]] = {
        "full, one page": (20, single),
        "full, five pages": (4, five),
        "full without vision, one page": (20, single_blind),
    }
    batches = {join_layer: stored(backbone, images, join_layer=join_layer) for join_layer in JOIN_LAYERS}
    runs: dict[str, Callable[[], object]] = {
        f"shallow, join layer {join_layer}": partial(backbone.states, [query], batch)
        for join_layer, batch in batches.items()
    }
    small = stored(backbone, images, preset="small")
    runs[_SMALL] = partial(backbone.states, [query], small)
    kept = int(batches[0].lengths[0])
    [page] = backbone._tokenize_pages(images[:1])
    suffix = len(backbone.tokens.suffix(query))
    positions = len(page.ids) + suffix

    seconds = time_in_turns(full_runs, runs, rounds=rounds)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    fastest = {name: min(values) for name, values in seconds.items()}
    full, fastest_full = (
        min(times["full, one page"], times["full, five pages"]) for times in (medians, fastest)
    )
    print(f"{shape.name}: {shape.rows * shape.columns} visual positions, {suffix} tokens behind the page")
    for name, value in medians.items():
        spread = max(seconds[name]) / min(seconds[name])
        print(
            f"  {name:34} {full / value:8.1f}x, fastest runs {fastest_full / fastest[name]:8.1f}x   "
            f"(slowest / fastest run {spread:.2f})"
        )
    by_join = []
    for join_layer in JOIN_LAYERS:
        name = f"shallow, join layer {join_layer}"
        allowed = operations(join_layer, suffix=suffix, positions=positions, kept=kept)
        by_join.append(
            {
                "join_layer": join_layer,
                "ratio": round(full / medians[name], 1),
                "ratio_of_fastest": round(fastest_full / fastest[name], 1),
                "ratio_without_vision": round(medians["full without vision, one page"] / medians[name], 1),
                "operations_allow": round(allowed, 1),
                "time_shares": time_shares(runs[name]),
            }
        )
    return {
        "shape": shape.name,
        "visual_positions": shape.rows * shape.columns,
        "positions": positions,
        "kept": kept,
        "suffix": suffix,
        "pages": PAGES,
        "by_join_layer": by_join,
        "small_preset": {
            "kept": int(small.lengths[0]),
            "bits": str(_setting("small").numbers),
            "time_ratio": round(medians[_SMALL] / medians[_PAPER], 3),
            "time_ratio_of_fastest": round(fastest[_SMALL] / fastest[_PAPER], 3),
        },
    }


def main() -> None:
    """Measure, print a table, then one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    shapes = [measure(shape, rounds=options.rounds) for shape in SHAPES]
    publish({"shapes": shapes, "torch": torch.__version__, "threads": torch.get_num_threads()}, options.out)


if __name__ == "__main__":
    main()
