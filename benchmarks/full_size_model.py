"""Checkpoints of random weights with a published configuration: real shapes, real tokenizer, no training.

The files are as published: bfloat16, several safetensors shards with an index, names of the first release.
Only one shard is in memory at a time. The random numbers of large tensors repeat: drawing four billion takes
longer than all that is measured with them.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, Qwen2_5_VLForConditionalGeneration

SHARD_BYTES = 2 * 10**9
_POOL = 2**24 + 1
_PUBLISHED_NAMES = {r"^model\.language_model\.": "model.", r"^model\.visual\.": "visual."}
SEVEN_BILLION: Mapping[str, Any] = {
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
}
"""Where Qwen2.5-VL-7B differs from the 3B; its vision tower puts out 3584 channels."""


def write_checkpoint(source: Path, folder: Path, changes: Mapping[str, Any] | None = None) -> int:
    """Write a model with the configuration of `source`, changed as told; returns the bytes of its weights.

    A folder that is complete is left as it is.
    """
    index = folder / "model.safetensors.index.json"
    if index.exists():
        return int(json.loads(index.read_text())["metadata"]["total_size"])
    folder.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        shutil.copyfile(file, folder / file.name)
    settings = json.loads((source / "config.json").read_text()) | dict(changes or {})
    if "hidden_size" in (changes or {}):
        settings["vision_config"]["out_hidden_size"] = settings["hidden_size"]
    (folder / "config.json").write_text(json.dumps(settings, indent=2) + "\n")
    shapes = _published_shapes(folder)
    pool = torch.randn(_POOL, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16) * 0.02
    shards = _plan_shards(shapes)
    weight_map: dict[str, str] = {}
    for number, names in enumerate(shards, start=1):
        shard = f"model-{number:05}-of-{len(shards):05}.safetensors"
        tensors = {name: _take(name, shapes[name], pool) for name in names}
        save_file(tensors, folder / shard, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(names, shard)
    total = sum(2 * shape.numel() for shape in shapes.values())
    index.write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}))
    return total


def _published_shapes(folder: Path) -> dict[str, torch.Size]:
    """Shapes by the names of the first release; a tied unembedding is not stored."""
    with torch.device("meta"):
        config = AutoConfig.from_pretrained(folder)
        model = Qwen2_5_VLForConditionalGeneration(config)
    shapes: dict[str, torch.Size] = {}
    for name, tensor in model.named_parameters():  # a tied tensor comes once
        for pattern, published in _PUBLISHED_NAMES.items():
            name = re.sub(pattern, published, name)
        shapes[name] = tensor.shape
    return shapes


def _plan_shards(shapes: Mapping[str, torch.Size]) -> list[list[str]]:
    shards: list[list[str]] = [[]]
    filled = 0
    for name, shape in shapes.items():
        if filled and filled + 2 * shape.numel() > SHARD_BYTES:
            shards.append([])
            filled = 0
        shards[-1].append(name)
        filled += 2 * shape.numel()
    return shards


def _take(name: str, shape: torch.Size, pool: torch.Tensor) -> torch.Tensor:
    """Norms around 1, everything else around 0, as a model starts out; each tensor from another offset."""
    start = _hash_name(name) % _POOL
    count = shape.numel()
    repeats = (start + count) // _POOL + 1
    values = pool.repeat(repeats)[start : start + count].reshape(shape)
    return values + 1 if "norm" in name or "ln_q" in name else values.clone()


def _hash_name(name: str) -> int:
    """A number of a name, the same in every process."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest())
