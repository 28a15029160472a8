"""What rerankers bring besides a backbone: peft adapters, merged into the weights, and ranking heads."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from safetensors import safe_open
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, cached_file
from transformers.utils.peft_utils import find_adapter_config_file

from ridgerank.errors import BackboneError


def find_adapter_base(source: str, revision: str | None = None) -> str | None:
    """The base a peft adapter names; None if `source` is not an adapter."""
    config_file = find_adapter_config_file(source, revision=revision)
    if config_file is None:
        return None
    base: str = json.loads(Path(config_file).read_text(encoding="utf-8"))["base_model_name_or_path"]
    return base


def merge_adapter(
    model: PreTrainedModel, source: str, revision: str | None, *, renamed: Mapping[str, str]
) -> None:
    """Add an adapter to the weights of its base; the model has the same parts as before."""
    apply_adapter(model, source, revision, renamed=renamed)
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils.other import ModulesToSaveWrapper

    for name, module in list(model.named_modules()):
        if isinstance(module, BaseTunerLayer):
            module.merge()
            plain: nn.Module = module.get_base_layer()
        elif isinstance(module, ModulesToSaveWrapper):
            plain = module.modules_to_save[module.active_adapters[0]]
        else:
            continue
        parent, _, part = name.rpartition(".")
        setattr(model.get_submodule(parent), part, plain)


def apply_adapter(
    model: PreTrainedModel, source: str, revision: str | None, *, renamed: Mapping[str, str]
) -> set[str]:
    """Put an adapter into the model; returns the parts that it replaces instead of tuning them.

    `renamed` leads from names of parts in earlier layouts, as patterns, to the present ones.
    """
    try:
        from peft import PeftConfig, inject_adapter_in_model
        from peft.utils.save_and_load import (
            get_peft_model_state_dict,
            load_peft_weights,
            set_peft_model_state_dict,
        )
    except ImportError as error:
        raise BackboneError(
            f"{source} is published as a peft adapter, and peft is not installed: "
            "`pip install 'ridgerank[colpali]'`"
        ) from error
    where = {"revision": revision} if revision else {}
    config = PeftConfig.from_pretrained(source, **where)
    config.inference_mode = True
    inject_adapter_in_model(config, model)
    stored = load_peft_weights(source, device="cpu", **where)
    weights = {_current_name(name, renamed): value for name, value in stored.items()}
    expected_names = set(get_peft_model_state_dict(model, save_embedding_layers=False))
    if set(weights) != expected_names:
        differing = sorted(set(weights) ^ expected_names)
        raise BackboneError(
            f"the adapter {source!r} has {len(weights)} tensors and its settings ask for "
            f"{len(expected_names)}; they differ in {differing[0]}: it is damaged, or made for a model of "
            "another layout"
        )
    set_peft_model_state_dict(model, weights)
    return set(config.modules_to_save or ())


def _current_name(name: str, renamed: Mapping[str, str]) -> str:
    """Name a tensor of an adapter as the present layout does."""
    name = name.removeprefix("base_model.model.")
    for pattern, replacement in renamed.items():
        name = re.sub(pattern, replacement, name)
    return name


PREFIX = "score."
"""How checkpoints name the head; 0 and 2 are its two layers, a ReLU stands between them."""
_NAMES = ("0.weight", "0.bias", "2.weight", "2.bias")


def load_ranking_head(source: str, *, revision: str | None = None) -> nn.Sequential:
    """Read `score.*` from a checkpoint, in float32: a score needs finer steps than half precision has."""
    tensors = _read_tensors(source, revision)
    missing = [PREFIX + name for name in _NAMES if name not in tensors]
    if missing:
        raise BackboneError(
            f"{source} holds no {missing[0]}; expected the two layers of a ranking head as published, or "
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
