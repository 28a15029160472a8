"""How fast a query over stored pages is.

    python -m benchmarks.speed --out results/speed.json

The pass: a random Qwen2.5-VL of 119 million parameters (28 layers, key and value width 4 x 128), 20 pages,
exit layer 21, at three shapes of a request. The pages are packed as the store packs them and run as a request
runs them. The baseline is the library's own forward, one page at a time or five at once, whichever is faster.
Runs are interleaved and medians compared. Other load on the machine slows short work in many small steps
more, so the fastest runs are compared as well.

"""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from benchmarks import publish
from ridgerank.backbones.vision import Qwen25VL
from ridgerank.lineage import StoragePreset, StorageSetting
from ridgerank.store.codec import (
    StoredPrefixes,
    choose_group,
    compress,
    encode_shared,
    fit_basis,
    keep_positions,
)
from ridgerank.store.layout import pack, unpack

PAGES, LAYERS, EXIT_LAYER, WIDTH, CELL = 20, 28, 21, 512, 28
_PAPER, _SMALL = "shallow, preset paper", "shallow, preset small"
STORED, BATCH, REPETITIONS = 100, 10, 41
KV_HEADS, VISUAL, HEAD_DIM = 4, 1280, 128


SHAPES = {"real request": (40, 32, 15), "smaller page": (24, 31, 15), "long question": (24, 32, 32)}
"""Rows and columns of a page's cells, each one visual position, and tokens after the page."""


def stored(backbone: Qwen25VL, images: Sequence[Image.Image], *, preset: StoragePreset) -> StoredPrefixes:
    """Pages as a request finds them in memory: encoded, compressed, packed into bytes and unpacked."""
    setting = StorageSetting.from_preset(preset, layers=LAYERS, reads_text=False)
    prefixes = [backbone.encode([image], exit_layer=EXIT_LAYER)[0] for image in images]
    basis = None
    if setting.quality is not None:
        shared = encode_shared(backbone, EXIT_LAYER)
        basis = fit_basis(
            [keep_positions(prefix, setting.keep, shared.shape[3]) for prefix in prefixes],
            quality=setting.quality,
            rotation=backbone.rotation(len(prefixes[0].rotary)),
            shared=shared,
            layers_per_group=choose_group(backbone.geometry),
        )
    blocks = [pack(compress(prefix, setting.keep, basis)) for prefix in prefixes]
    return StoredPrefixes([unpack(block, basis=basis) for block in blocks])


def full_pass(
    backbone: Qwen25VL, model: Qwen2_5_VLForConditionalGeneration, images: Sequence[Image.Image], query: str
) -> Callable[[], object]:
    """Make the library's forward over these pages."""
    pages = backbone._tokenize_pages(images)
    suffix = torch.tensor(backbone.tokens.suffix(query))
    ids = torch.stack([torch.cat([page.ids, suffix]) for page in pages])
    pixels = backbone._image_processor(images=list(images), return_tensors="pt")
    types = (ids == model.config.image_token_id).int()
    return partial(model, input_ids=ids, mm_token_type_ids=types, **pixels, use_cache=False, logits_to_keep=1)


def operations(*, suffix: int, positions: int, kept: int) -> float:
    """Divide the multiplications of 20 full passes by those of a shallow pass: products and attention."""
    weights = 4 * WIDTH * WIDTH + 3 * WIDTH * 4 * WIDTH
    full = PAGES * LAYERS * positions * (weights + WIDTH * (positions + 1))
    joined = suffix * (weights + 2 * WIDTH * (kept + suffix / 2)) * (EXIT_LAYER - 1)
    last = suffix * 2 * WIDTH * WIDTH + (weights - 2 * WIDTH * WIDTH) + 2 * WIDTH * (kept + suffix)
    return full / (PAGES * (joined + last))


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
    with torch.inference_mode():
        for turn in range(rounds + 1):
            for name, (times, run) in full.items():
                runs = {name: (times, run), **{short: (1, each) for short, each in shallow.items()}}
                for each, (count, call) in runs.items():
                    start = time.perf_counter()
                    call()
                    if turn:
                        seconds[each].append(count * (time.perf_counter() - start))
    return seconds


def measure(name: str, *, rounds: int) -> dict[str, Any]:
    """Time both ways at one shape and print the ratios."""
    rows, columns, suffix = SHAPES[name]
    height, width = CELL * rows, CELL * columns
    backbone, model = small_qwen(layers=LAYERS, width=WIDTH, head_dim=128, max_pixels=height * width)
    rng = np.random.default_rng(0)
    images = [Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)) for _ in range(PAGES)]
    query = "x" * (suffix - len(backbone.tokens.suffix("")))
    full_runs = {
        "full, one page": (20, full_pass(backbone, model, images[:1], query)),
        "full, five pages": (4, full_pass(backbone, model, images[:5], query)),
    }
    paper = stored(backbone, images, preset="paper")
    small = stored(backbone, images, preset="small")
    runs: dict[str, Callable[[], object]] = {
        _PAPER: partial(backbone.states, [query], paper),
        _SMALL: partial(backbone.states, [query], small),
    }
    kept = int(paper.lengths[0])
    [page] = backbone._tokenize_pages(images[:1])
    suffix = len(backbone.tokens.suffix(query))
    positions = len(page.ids) + suffix
    seconds = time_in_turns(full_runs, runs, rounds=rounds)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    fastest = {name: min(values) for name, values in seconds.items()}
    full, fastest_full = (
        min(times["full, one page"], times["full, five pages"]) for times in (medians, fastest)
    )
    print(f"{name}: {rows * columns} visual positions, {suffix} tokens after the page")
    for way, value in medians.items():
        print(f"  {way:34} {full / value:8.1f}x, fastest runs {fastest_full / fastest[way]:8.1f}x")
    return {
        "shape": name,
        "visual_positions": rows * columns,
        "positions": positions,
        "kept": kept,
        "suffix": suffix,
        "pages": PAGES,
        "ratio": round(full / medians[_PAPER], 1),
        "ratio_of_fastest": round(fastest_full / fastest[_PAPER], 1),
        "operations_allow": round(operations(suffix=suffix, positions=positions, kept=kept), 1),
        "small_preset": {
            "kept": int(small.lengths[0]),
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
    shapes = [measure(name, rounds=options.rounds) for name in SHAPES]
    system = {"torch": torch.__version__, "threads": torch.get_num_threads()}
    publish({"shapes": shapes, **system}, options.out)


def small_qwen(
    *, layers: int, width: int, head_dim: int, max_pixels: int
) -> tuple[Qwen25VL, Qwen2_5_VLForConditionalGeneration]:
    """A backbone and its model: four heads, an MLP of four times the width, a vision tower of four layers."""
    tokenizer = _tokenizer()
    ids = tokenizer.convert_tokens_to_ids
    torch.manual_seed(0)
    half = head_dim // 2
    config = Qwen2_5_VLConfig(
        text_config={
            "hidden_size": width,
            "intermediate_size": 4 * width,
            "num_hidden_layers": layers,
            "num_attention_heads": width // head_dim,
            "num_key_value_heads": width // head_dim,
            "vocab_size": len(tokenizer),
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e6,
                "mrope_section": [half // 4, half * 3 // 8, half * 3 // 8],
            },
        },
        vision_config={
            "depth": 4,
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_heads": 4,
            "out_hidden_size": width,
            "fullatt_block_indexes": [3],
        },
        image_token_id=ids("<|image_pad|>"),
        video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"),
        vision_end_token_id=ids("<|vision_end|>"),
        tie_word_embeddings=True,
    )
    model = Qwen2_5_VLForConditionalGeneration(config).eval()
    processor = Qwen2VLImageProcessorPil()
    Qwen25VL.limit_pixels(processor, max_pixels)
    return Qwen25VL(f"random-{layers}x{width}", model, tokenizer, processor), model


def _tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer that knows the prompt's words and control tokens."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=480, show_progress=False, initial_alphabet=alphabet)
    words = [Qwen25VL.prompt.instruction, "user\nsystem\nassistant\nyes\nno"]
    backend.train_from_iterator(words * 9, trainer)
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"]
    backend.add_special_tokens([*control, "<|image_pad|>", "<|video_pad|>"])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")


if __name__ == "__main__":
    main()
