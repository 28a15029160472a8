"""How much faster a query over stored pages is than a full pass over each of them.

    python -m benchmarks.shallow_speed --out results/shallow_speed.json

A random Qwen2.5-VL of 119 million parameters (28 layers, key and value width 4 x 128), 20 pages of 768
visual positions, a suffix of 32 tokens, exit layer 21, a third of the visual positions kept, int8. The
baseline is the library's own forward, one page at a time or five at once, whichever is faster. Runs are
interleaved and medians compared, so that whatever else the machine does falls on all alike.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from transformers import PreTrainedTokenizerFast, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from ridgerank.backbones.prefix import Prefix
from ridgerank.backbones.qwen2_5_vl import Qwen25VL
from ridgerank.store.quantize import dequantize, quantize_keys, quantize_values

PAGES, EXIT_LAYER, SUFFIX, VISUAL = 20, 21, 32, 768
BARS = {0: 30.0, 14: 70.0}
"""Ratio to reach, by join layer."""

Int8 = tuple[Tensor, Tensor, Tensor, Tensor]
"""Key codes and scales, value codes and scales: of one page, or of pages of equal length, stacked."""


class Int8Prefixes:
    """A `PrefixBatch` over quantized pages of equal length, side by side in memory as a reader leaves them.

    Every step is one operation over all pages: a hundred small ones a layer would each wait for the slowest
    thread, which on a busy machine costs more than the work.
    """

    def __init__(self, pages: Int8, next_positions: Sequence[int], *, join_layer: int) -> None:
        self._pages = tuple(part[:, join_layer:].contiguous() for part in pages)
        self.join_layer, self.exit_layer = join_layer, EXIT_LAYER
        self.lengths = torch.full((len(next_positions),), pages[0].shape[3])
        self.next_positions = torch.tensor(next_positions)

    def fill(self, index: int, keys: Tensor, values: Tensor) -> None:
        """Write one layer of every page, back in floating point."""
        key_codes, key_scales, value_codes, value_scales = (
            part[:, index - self.join_layer] for part in self._pages
        )
        dequantize(key_codes, key_scales, keys)
        dequantize(value_codes, value_scales, values)


def build() -> tuple[Qwen25VL, Qwen2_5_VLForConditionalGeneration]:
    """Make the model, with a tokenizer that knows the prompt's words."""
    prompt = Qwen25VL.prompt
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=480, show_progress=False, initial_alphabet=alphabet)
    backend.train_from_iterator([prompt.instruction, "user\nsystem\nassistant\nyes\nno"] * 9, trainer)
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"]
    backend.add_special_tokens([*control, "<|image_pad|>", "<|video_pad|>"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")
    ids = tokenizer.convert_tokens_to_ids
    torch.manual_seed(0)
    config = Qwen2_5_VLConfig(
        text_config={
            "hidden_size": 512,
            "intermediate_size": 2048,
            "num_hidden_layers": 28,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "vocab_size": len(tokenizer),
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
        },
        vision_config={
            "depth": 4,
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_heads": 4,
            "out_hidden_size": 512,
            "fullatt_block_indexes": [3],
        },
        image_token_id=ids("<|image_pad|>"),
        video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"),
        vision_end_token_id=ids("<|vision_end|>"),
        tie_word_embeddings=True,
    )
    model = Qwen2_5_VLForConditionalGeneration(config).eval()
    return Qwen25VL("119m", model, tokenizer, Qwen2VLImageProcessorPil()), model


def thin(prefix: Prefix) -> Int8:
    """Keep every third visual position and quantize."""
    kept = ~prefix.visual | (prefix.visual.cumsum(0) % 3 == 0)
    return (*quantize_keys(prefix.keys[:, :, kept]), *quantize_values(prefix.values[:, :, kept]))


def full_passes(
    backbone: Qwen25VL, model: Qwen2_5_VLForConditionalGeneration, images: Sequence[Image.Image], query: str
) -> tuple[Callable[[], object], Callable[[], object]]:
    """Make the library's forward over these pages: with the vision tower, and from ready embeddings."""
    pages = backbone._read(images)
    suffix = torch.tensor(backbone._tokens.suffix(query))
    ids = torch.stack([torch.cat([page.ids, suffix]) for page in pages])
    pixels = backbone._process(images)
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
    found: dict[str, float] = {}
    for event in events:
        kind = kinds.get(event.key.removeprefix("aten::"), "elementwise and the rest")
        found[kind] = found.get(kind, 0.0) + event.self_cpu_time_total
    return {kind: round(part / total, 3) for kind, part in sorted(found.items(), key=lambda kv: -kv[1])}


def main() -> None:
    """Measure, print a table, then one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()

    backbone, model = build()
    rng = np.random.default_rng(0)
    images = [Image.fromarray(rng.integers(0, 256, (672, 896, 3), dtype=np.uint8)) for _ in range(5)]
    query = "x" * (SUFFIX - len(backbone._tokens.suffix("")))
    encoded = [backbone.encode([image], exit_layer=EXIT_LAYER)[0] for image in images]
    copies = PAGES // len(images)  # four of each page: time does not depend on what they hold
    starts = [prefix.next_position for prefix in encoded] * copies
    positions = encoded[0].keys.shape[2] + SUFFIX
    key_codes, key_scales, value_codes, value_scales = zip(*map(thin, encoded), strict=True)
    int8 = (
        torch.stack(key_codes * copies),
        torch.stack(key_scales * copies),
        torch.stack(value_codes * copies),
        torch.stack(value_scales * copies),
    )
    kept = int8[0].shape[3]
    del encoded

    with torch.inference_mode():
        one, one_blind = full_passes(backbone, model, images[:1], query)
        five, _ = full_passes(backbone, model, images, query)
    runs: dict[str, tuple[int, Callable[[], object]]] = {
        "full, one page": (20, one),
        "full, five pages": (4, five),
        "full without vision, one page": (20, one_blind),
    }
    for join_layer in BARS:
        batch = Int8Prefixes(int8, starts, join_layer=join_layer)
        runs[f"shallow, join layer {join_layer}"] = (1, partial(backbone.states, query, batch))

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
    fastest = {name: min(values) for name, values in seconds.items()}
    result: dict[str, object] = {
        "benchmark": "shallow_speed",
        "ratio": {str(m): round(full / medians[f"shallow, join layer {m}"], 1) for m in BARS},
        "bar": {str(m): bar for m, bar in BARS.items()},
        "ratio_of_fastest_runs": {
            str(m): round(fastest["full, one page"] / fastest[f"shallow, join layer {m}"], 1) for m in BARS
        },
        "ratio_without_vision": {str(m): round(blind / medians[f"shallow, join layer {m}"], 1) for m in BARS},
        "operations_allow": {str(m): round(operations(m, positions, kept), 1) for m in BARS},
        "time_shares": where,
        "seconds_per_request": {name: round(value, 4) for name, value in medians.items()},
        "shape": {"positions": positions, "kept": kept, "suffix": SUFFIX, "pages": PAGES},
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }
    for name, value in medians.items():
        spread = max(seconds[name]) / min(seconds[name])
        print(f"{name:34} {full / value:8.1f}x   (slowest / fastest run {spread:.2f})")
    print(json.dumps(result))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
