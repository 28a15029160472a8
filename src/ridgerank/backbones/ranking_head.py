"""The ranking head of a model that was trained with one: two layers on the last normed state."""

import json
from pathlib import Path

from safetensors import safe_open
from torch import Tensor, nn
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, cached_file

from ridgerank.errors import BackboneError

PREFIX = "score."
"""How checkpoints name the head; 0 and 2 are its two layers, a ReLU stands between them."""
_NAMES = ("0.weight", "0.bias", "2.weight", "2.bias")


def load_ranking_head(source: str, *, revision: str | None = None) -> nn.Sequential:
    """Read `score.*` from a checkpoint, in float32: a score needs finer steps than half precision has."""
    tensors = _read_tensors(source, revision)
    missing = [PREFIX + name for name in _NAMES if name not in tensors]
    if missing:
        raise BackboneError(
            f"{source} holds no {missing[0]}; wanted the two layers of a ranking head as published, or "
            "another prompt"
        )
    width, inner = tensors["0.weight"].shape[1], tensors["0.weight"].shape[0]
    head = nn.Sequential(nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, 1))
    head.load_state_dict({name: tensors[name].float() for name in _NAMES})
    return head.eval()


def _read_tensors(source: str, revision: str | None) -> dict[str, Tensor]:
    """The tensors below `score.`, from whichever shards hold them."""
    index = _find_file(source, SAFE_WEIGHTS_INDEX_NAME, revision)
    if index is not None:
        shard_of: dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        shards = {shard for name, shard in shard_of.items() if name.startswith(PREFIX)}
    else:
        shards = {SAFE_WEIGHTS_NAME}
    tensors: dict[str, Tensor] = {}
    for shard in sorted(shards):
        path = _find_file(source, shard, revision)
        if path is None:
            continue
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 (no mapping)
                if name.startswith(PREFIX):
                    tensors[name.removeprefix(PREFIX)] = file.get_tensor(name)
    return tensors


def _find_file(source: str, name: str, revision: str | None) -> Path | None:
    path = cached_file(source, name, revision=revision, _raise_exceptions_for_missing_entries=False)
    return None if path is None else Path(path)
