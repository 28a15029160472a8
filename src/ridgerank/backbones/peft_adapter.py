"""peft adapters: a folder or repository of small tensors that tune a base model.

The adapter is merged into the base: the decoder's layers are run by hand, and see plain matrices only.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from torch import nn
from transformers import PreTrainedModel
from transformers.utils.peft_utils import find_adapter_config_file

from ridgerank.errors import BackboneError


def find_adapter_base(source: str, revision: str | None = None) -> str | None:
    """The base a peft adapter names; None where `source` is no adapter."""
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
