"""The files of a model, its adapter and its ranking head, read as data: no code runs."""

import ctypes
import json
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, cached_file
from transformers.utils.peft_utils import find_adapter_config_file

from ridgerank.errors import BackboneError, RidgeRankError
from ridgerank.extras import require_packages

NO_CODE: Mapping[str, Any] = {"trust_remote_code": False}
"""Passed to whatever may find code beside a model: without it, transformers asks whether to run the code."""


@contextmanager
def reading(part: str, model: str, *, error_type: type[RidgeRankError] = BackboneError) -> Iterator[None]:
    """Turn whatever a broken file leads transformers into into one line that names the part and the model."""
    try:
        yield
    except (RidgeRankError, MemoryError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # of a Rust parser
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        advice = "Check the name and the connection, or download it once and give its folder."
        if isinstance(error, ImportError) and part.endswith(".gguf"):
            advice = "Install what reads GGUF with: pip install 'ridgerank[gguf]'"
        elif os.path.exists(model):  # noqa: PTH110 (a `Path` raises where a name is too long)
            advice = "Look at that file, or download the model again."
        raise error_type(f"cannot load {model!r}: {part}: {reason[:300]} {advice}") from error


def find_file(source: str, name: str, revision: str | None = None) -> Path | None:
    """A file of a folder or repository, downloaded if need be; None if there is no such file."""
    path = cached_file(source, name, revision=revision, _raise_exceptions_for_missing_entries=False)
    return None if path is None else Path(path)


def find_weights(source: str, revision: str | None = None) -> list[Path]:
    """The safetensors files of a model; weights of another kind are refused."""
    if (whole := find_file(source, SAFE_WEIGHTS_NAME, revision)) is not None:
        return [whole]
    index = find_file(source, SAFE_WEIGHTS_INDEX_NAME, revision)
    if index is None:
        raise BackboneError(
            f"{source} holds neither {SAFE_WEIGHTS_NAME} nor {SAFE_WEIGHTS_INDEX_NAME}; expected weights as "
            "safetensors: pytorch_model.bin is not read, save the model again with save_pretrained"
        )
    with reading(SAFE_WEIGHTS_INDEX_NAME, source):
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    shards = {name: find_file(source, name, revision) for name in names}
    if missing := [name for name, path in shards.items() if path is None]:
        raise BackboneError(
            f"{source} lacks {missing[0]} ({len(missing)} of {len(names)} files); download it again"
        )
    return [path for path in shards.values() if path is not None]


_UNPACKED = ("F64", "F32", "F16", "BF16", "I64")  # the last for positions, which old files list
_FLOATS = {"BF16": torch.bfloat16, "F16": torch.float16}
_DEPTHS = ("num_hidden_layers", "num_layers", "depth")
_MAX_DEPTH = 1000
_ATTENTION = ("attn_implementation", "_attn_implementation")


def load_config(source: str, **options: Any) -> tuple[dict[str, Any], PreTrainedConfig]:  # noqa: ANN401 (of from_pretrained)
    """A configuration as its file says it and as transformers reads it, which lists every layer."""
    stated, _ = PreTrainedConfig.get_config_dict(source, **options)
    for name, value in _settings(stated):
        if name in _DEPTHS and isinstance(value, int) and value > _MAX_DEPTH:
            raise BackboneError(f"the configuration of {source} has {value:,} layers, above {_MAX_DEPTH:,}")
        if name in _ATTENTION and "/" in str(value):
            raise BackboneError(
                f"the configuration of {source} asks for code: {name} is {value!r}; remove it"
            )
    return stated, AutoConfig.from_pretrained(source, **NO_CODE, **options)


def require_sizes(
    model: str,
    model_class: type[PreTrainedModel],
    config: PreTrainedConfig,
    files: Sequence[Path],
    *,
    without: tuple[str, ...] = (),
) -> torch.dtype:
    """Refuse a configuration of a larger model than its weights are of; a type that holds them."""
    stored, types = 0, set()
    for path in files:
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 (no mapping)
                    part = file.get_slice(name)
                    stored += math.prod(part.get_shape())
                    types.add(part.get_dtype())
                    if part.get_dtype() not in _UNPACKED:
                        raise BackboneError(
                            f"{path}: {name} is quantized; expected weights as floating point"
                        )
        except (SafetensorError, OSError, ValueError) as error:
            raise BackboneError(
                f"{path} cannot be read as safetensors ({error}): cut short or damaged, download it again"
            ) from error
    with torch.device("meta"):
        planned = model_class(config)
    planned.tie_weights()
    needed = sum(
        parameter.numel() for name, parameter in planned.named_parameters() if not name.startswith(without)
    )
    if needed > stored:
        raise BackboneError(
            f"the configuration of {model} describes a model of {needed:,} numbers, its weights hold "
            f"{stored:,}; give the configuration that goes with the weights, or all of them"
        )
    return _FLOATS.get(types.pop(), torch.float32) if len(types) == 1 else torch.float32


def _settings(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The settings of a configuration and of the configurations of its parts."""
    for name, value in config.items():
        yield name, value
        if isinstance(value, Mapping):
            yield from _settings(value)


def require_finite(model: str, loaded: nn.Module, prefix: str = "") -> None:
    """Refuse weights with a NaN or an infinite number: every score would be one."""
    for name, parameter in loaded.named_parameters(prefix):
        if parameter.numel() and not all(map(torch.isfinite, parameter.detach().aminmax())):
            raise BackboneError(
                f"the weights of {model} are damaged: {name} holds numbers that are NaN or infinite; "
                "download the model again, or load it in another dtype"
            )


_PAGE_BYTES, _PAGE_OUT = 4096, 21


def release(mapped: Tensor) -> None:
    """Let go of the memory of a tensor mapped from a file, on Linux; it is read again when needed."""
    if sys.platform == "linux" and mapped.device.type == "cpu":
        first = -(-mapped.data_ptr() // _PAGE_BYTES) * _PAGE_BYTES
        nbytes = mapped.data_ptr() + mapped.nbytes - first
        if nbytes > 0:
            ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(nbytes), _PAGE_OUT)


_ADAPTER_WEIGHTS = "adapter_model.safetensors"


def find_adapter_base(source: str, revision: str | None = None) -> str | None:
    """The base a peft adapter names; None if `source` is not an adapter."""
    config_file = find_adapter_config_file(source, revision=revision)
    if config_file is None:
        return None
    base: str = json.loads(Path(config_file).read_text(encoding="utf-8"))["base_model_name_or_path"]
    return base


def apply_adapter(
    model: PreTrainedModel,
    source: str,
    revision: str | None,
    *,
    renamed: Mapping[str, str],
    merge: bool = False,
) -> set[str]:
    """Put an adapter into the model; returns the parts it replaces. `renamed` are patterns of older names.

    With `merge` it is added to the weights, and the model has the same parts as before.
    """
    require_packages("peft")
    from peft import PeftConfig
    from peft.mapping import PEFT_TYPE_TO_TUNER_MAPPING
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
    tuner = PEFT_TYPE_TO_TUNER_MAPPING[config.peft_type](model, config, "default")
    weights = {}
    for name, value in stored.items():
        name = name.removeprefix("base_model.model.")
        for pattern, replacement in renamed.items():
            name = re.sub(pattern, replacement, name)
        weights[name] = value
    expected_names = set(get_peft_model_state_dict(model, save_embedding_layers=False))
    if set(weights) != expected_names:
        differing = sorted(set(weights) ^ expected_names)
        raise BackboneError(
            f"the adapter {source!r} has {len(weights)} tensors and its settings ask for "
            f"{len(expected_names)}; they differ in {differing[0]}: it is damaged, or made for a model of "
            "another layout"
        )
    set_peft_model_state_dict(model, weights)
    if merge:
        tuner.merge_and_unload()
    return set(config.modules_to_save or ())


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
