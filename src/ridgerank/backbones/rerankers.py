"""What rerankers bring besides a backbone: peft adapters, merged into the weights, and ranking heads."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils.peft_utils import find_adapter_config_file

from ridgerank.backbones.weights import find_file, find_weights
from ridgerank.errors import BackboneError
from ridgerank.extras import require_packages

_ADAPTER_WEIGHTS = "adapter_model.safetensors"


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
    require_packages("peft")
    from peft import PeftConfig, inject_adapter_in_model
    from peft.utils.save_and_load import get_peft_model_state_dict, set_peft_model_state_dict

    where = {"revision": revision} if revision else {}
    config = PeftConfig.from_pretrained(source, **where)
    config.inference_mode = True
    path = find_file(source, _ADAPTER_WEIGHTS, revision)
    if path is None:
        raise BackboneError(
            f"{source} holds no {_ADAPTER_WEIGHTS}; expected the adapter as safetensors: adapter_model.bin "
            "is not read"
        )
    stored = load_file(path)
    longest = max((side for tensor in stored.values() for side in tensor.shape), default=0)
    if (rank := getattr(config, "r", 0)) > longest:
        raise BackboneError(f"the adapter {source!r} has settings of rank {rank:,}, and no such tensor")
    inject_adapter_in_model(config, model)
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
    tensors: dict[str, Tensor] = {}
    for path in find_weights(source, revision):
        with safe_open(path, framework="pt") as file:
            names = [name for name in file.keys() if name.startswith(PREFIX)]  # noqa: SIM118 (no mapping)
            tensors |= {name.removeprefix(PREFIX): file.get_tensor(name) for name in names}
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
