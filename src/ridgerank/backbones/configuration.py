"""A model's configuration, read so that nothing the file says about the decoder is lost.

Configurations have been written in two forms: with the decoder's settings below `text_config`, and flat, all
in one. A class that expects the one form takes its defaults in place of the other's settings, with a warning
at best: GLM-4.1V would lose its partial rotation, and every margin would be wrong. So a flat file is nested
first, and whatever was read is compared with what the file says.
"""

from collections.abc import Mapping
from typing import Any

from transformers import AutoConfig, PreTrainedConfig

from ridgerank.errors import BackboneError

_NOT_THE_DECODERS = {"model_type", "architectures", "vision_config", "transformers_version"}
_COMPARED = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "hidden_act",
    "rms_norm_eps",
    "vocab_size",
)
_ROTARY = ("rope_theta", "partial_rotary_factor", "mrope_section")
_SAME = {"default": "default", "mrope": "default"}
"""Rotary types by the names of earlier releases, and what they are called now."""


def read_config(source: str, **options: Any) -> PreTrainedConfig:  # noqa: ANN401 (what from_pretrained takes)
    """The configuration of a folder or repository; refused where a setting of the file was not read."""
    stated, _ = PreTrainedConfig.get_config_dict(source, **options)
    config = AutoConfig.from_pretrained(source, **options)
    if "gguf_file" in options:
        return config
    if hasattr(config, "text_config") and "text_config" not in stated and unread_settings(stated, config):
        decoder = {name: value for name, value in stated.items() if name not in _NOT_THE_DECODERS}
        config = type(config)(**{**stated, "text_config": decoder})
    if unread := unread_settings(stated, config):
        raise BackboneError(
            f"transformers read the configuration of {source!r} otherwise than it is written: "
            f"{'; '.join(unread)}; give a configuration in the form of this release of transformers"
        )
    return config


def unread_settings(stated: Mapping[str, Any], config: PreTrainedConfig) -> list[str]:
    """What the file says about the decoder and the configuration has otherwise, in words."""
    written = stated.get("text_config") or stated
    read = config.get_text_config()
    values = {name: (written[name], getattr(read, name, None)) for name in _COMPARED if name in written}
    rotary = dict(read.rope_parameters or {}) if hasattr(read, "rope_parameters") else {}
    written_rotary = _written_rotary(written)
    values |= {name: (written_rotary[name], rotary.get(name)) for name in _ROTARY if name in written_rotary}
    if (kind := written_rotary.get("rope_type", written_rotary.get("type"))) is not None:
        values["rope_type"] = (_SAME.get(kind, kind), rotary.get("rope_type"))
    return [
        f"{name} is {in_file!r} there and {in_memory!r} here"
        for name, (in_file, in_memory) in values.items()
        if in_file is not None and in_file != in_memory
    ]


def _written_rotary(written: Mapping[str, Any]) -> dict[str, Any]:
    """Rotary settings of all the places where releases of transformers have written them."""
    loose = {name: written[name] for name in _ROTARY if name in written}
    rotary = {**loose, **(written.get("rope_scaling") or {}), **(written.get("rope_parameters") or {})}
    return {name: value for name, value in rotary.items() if not isinstance(value, Mapping)}
