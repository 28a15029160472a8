"""From a name or a folder to a `Backbone`.

A configuration is read so that nothing the file says about the decoder is lost. A GGUF file is converted by
transformers once; later loads take the converted copy, a bounded folder of safetensors in the user's cache.
"""

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils import SAFE_WEIGHTS_NAME

from ridgerank.atomic import cache_folder
from ridgerank.backbones import vision
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.model_settings import PRESETS, absolute_name, find_model, find_preset
from ridgerank.backbones.text import MODEL_CLASSES, CausalText, choose_prompt, parse_text_budget, text_prompt
from ridgerank.backbones.weights import (
    NO_CODE,
    PREFIX,
    apply_adapter,
    find_adapter_base,
    find_weights,
    load_config,
    load_ranking_head,
    reading,
    require_sizes,
)
from ridgerank.errors import BackboneError
from ridgerank.extras import load_plugins

logger = logging.getLogger(__name__)

FAMILIES: dict[str, type[vision.VisualBackbone]] = {
    "qwen2_5_vl": vision.Qwen25VL,
    "qwen2_vl": vision.Qwen2VL,
    "qwen3_vl": vision.Qwen3VL,
    "glm4v": vision.Glm41V,
    "glm46v": vision.Glm46V,
    "idefics3": vision.Idefics3,
    "smolvlm": vision.SmolVLM,
}
"""Families that look at pages, by the `model_type` of their configuration; `MODEL_CLASSES` read text."""


_HALVES = (torch.bfloat16, torch.float16, "bfloat16", "float16")


def load_backbone(
    name: str | Path,
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
    revision: str | None = None,
    max_pixels: int | None = None,
    page_text: str | None = None,
    prompt: str | None = None,
    layers: int | None = None,
) -> Backbone:
    """Load a model by short name, by hub repository or from a folder.

    The device defaults to CUDA, else the CPU, and the dtype to bfloat16, but on a CPU to float32 for weights
    that were saved in it: weights trained in bfloat16 overflow float16. Apple's GPU (`mps`) has to be asked
    for, as nobody has run it yet. A GGUF file, or a folder with one, is unpacked by transformers' own loader,
    once: the result is kept in the cache.
    `max_pixels` is the pixel budget of a page image; the default suits the family, and is never above what
    the model's own processor says. For models that read text, `page_text` is how much of it (`head 512`),
    and `prompt` one of `TEXT_PROMPTS`; for others it is one of `PRESETS`, where the name does not tell. A
    peft adapter is merged into the base it names. With `layers`, only what runs queries over stored pages up
    to that layer is loaded now, and the rest when it is first needed.
    """
    name = absolute_name(str(name))
    source, gguf = find_model(name)
    chosen, quantized = dtype, gguf is not None
    device, dtype = placement(device, dtype)
    tokenizer_class = AutoTokenizer
    if gguf is not None:
        with reading(gguf, source):
            if (converted := convert_once(Path(source, gguf), _convert)) is not None:
                source, gguf = str(converted), None
                tokenizer_class = PreTrainedTokenizerFast  # as saved: a family's own class would add to it
    options: dict[str, Any] = {"revision": revision} if revision else {}
    base, adapter = source, None
    if gguf is None:
        with reading("adapter_config.json", source):
            if (adapter_base := find_adapter_base(source, revision)) is not None:
                base, adapter, options = adapter_base, source, {}
    options |= {"gguf_file": gguf} if gguf else {}
    with reading(gguf or "config.json", base):
        config = read_config(base, **options)
    _require_supported(name, config, max_pixels=max_pixels, page_text=page_text)
    if chosen is None and device.type == "cpu" and (quantized or config.dtype in _HALVES):
        dtype = torch.bfloat16
    with reading(gguf or "its tokenizer (tokenizer.json, tokenizer_config.json)", base):
        tokenizer = tokenizer_class.from_pretrained(base, **NO_CODE, **options)
    family = FAMILIES.get(config.model_type)
    preset = None
    if family is not None:
        named = name if name in PRESETS else source
        preset = find_preset(named, config.model_type, prompt=prompt, classes=config.architectures or ())
        if preset is not None and preset.notice:
            logger.warning("%s", preset.notice)
        with reading("preprocessor_config.json", base):
            image_processor = family.image_processor_class.from_pretrained(base, **options)
    model_class = MODEL_CLASSES[config.model_type] if family is None else family.model_class
    with reading(gguf or "its weights", base):
        head = preset is not None and preset.ranking_head
        kept = dtype if gguf or adapter else None
        model = load_model(name, base, options, model_class, config, kept, ranking_head=head)
    if adapter is not None:
        with reading("the adapter", adapter):
            renamed = {} if family is None else family.former_names
            apply_adapter(model, adapter, revision, renamed=renamed, merge=True)
    model.eval()
    backbone: Backbone
    if family is None:
        control = {token.content for token in tokenizer.backend_tokenizer.get_added_tokens_decoder().values()}
        backbone = CausalText(
            name,
            model,
            tokenizer,
            prompt=text_prompt(prompt or choose_prompt(name, control)),
            page_tokens=parse_text_budget(page_text or "head 512"),
        )
    else:
        default = family.default_max_pixels if preset is None else preset.max_pixels
        if max_pixels is not None:
            family.limit_pixels(image_processor, max_pixels)
        elif default is not None and default < family.page_sizing(image_processor).max_pixels:
            family.limit_pixels(image_processor, default)
        backbone = family(name, model, tokenizer, image_processor, preset)
    backbone.device, backbone.dtype = device, dtype  # where every part moves when it is first held
    backbone.hold(layers or backbone.geometry.layers, pages=layers is None, head=layers is None)
    logger.info("loaded %s (%s) on %s in %s", name, config.model_type, device, dtype)
    return backbone


def load_model(
    name: str,
    base: str,
    options: Mapping[str, Any],
    model_class: type[PreTrainedModel],
    config: PreTrainedConfig,
    dtype: torch.dtype | None,
    *,
    ranking_head: bool = False,
) -> PreTrainedModel:
    """A model of this class; damaged or missing weights are refused. Without a `dtype` they stay mapped."""
    # A model trained with a ranking head has been published without its language head.
    without = ("lm_head.",) if ranking_head else ()
    if "gguf_file" not in options:
        files = find_weights(base, options.get("revision"))
        stored = require_sizes(name, model_class, config, files, without=without)
        dtype = dtype or stored
        options = {**options, "config": config, "use_safetensors": True}
    model, loading = model_class.from_pretrained(
        base, dtype=dtype, output_loading_info=True, ignore_mismatched_sizes=True, **NO_CODE, **options
    )
    absent = {*loading["missing_keys"], *(key for key, *_ in loading["mismatched_keys"])}
    if missing := {key for key in absent if not key.startswith(without)}:
        raise BackboneError(
            f"the weights of {name} lack {min(missing)} in the shape expected ({len(missing)} tensors in "
            "all), which would be drawn at random; download it again, or give its own configuration"
        )
    unused = {key for key in loading["unexpected_keys"] if not (ranking_head and key.startswith(PREFIX))}
    if unused:
        logger.warning("%s: %d tensors were not used, such as %s", name, len(unused), min(unused))
    if ranking_head:
        model.score = load_ranking_head(base, revision=options.get("revision"))
    return model


def _convert(file: Path, folder: Path) -> None:
    options = {"gguf_file": file.name}
    config = read_config(str(file.parent), **options)
    _require_supported(str(file), config, max_pixels=None, page_text=None)
    logger.info("unpacking %s, once: later loads take it from %s", file, folder.parent)
    AutoTokenizer.from_pretrained(file.parent, **NO_CODE, **options).save_pretrained(folder)
    model_class = MODEL_CLASSES[config.model_type]
    model = load_model(str(file), str(file.parent), options, model_class, config, torch.float32)
    # Not `save_pretrained`, which refuses what was unpacked. Tied weights are named once, as there.
    weights = {name: parameter.detach().contiguous() for name, parameter in model.named_parameters()}
    save_file(weights, folder / SAFE_WEIGHTS_NAME, metadata={"format": "pt"})
    config.save_pretrained(folder)


def parse_dtype(name: str | torch.dtype | None) -> torch.dtype | None:
    """A dtype by the name people write; a dtype and None stay as they are."""
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if name is None or isinstance(name, torch.dtype):
        return name
    if name not in known:
        raise BackboneError(f"no dtype called {name!r}; known: {', '.join(known)}")
    return known[name]


def placement(
    device: str | torch.device | None, dtype: torch.dtype | None
) -> tuple[torch.device, torch.dtype]:
    """Where a model runs and with what numbers: CUDA or the CPU unless asked for; refused if not there."""
    have = {"cuda": torch.cuda.is_available(), "cpu": True, "mps": torch.backends.mps.is_available()}
    usable = [kind for kind, there in have.items() if there]
    try:
        chosen = torch.device(usable[0] if device is None else device)
    except RuntimeError:
        chosen = None
    if chosen is None or chosen.type not in usable:
        raise BackboneError(
            f"no device {str(device)!r} on this machine; there is {', '.join(sorted(usable))}"
        )
    return chosen, dtype or (torch.bfloat16 if chosen.type == "cuda" else torch.float32)


def _require_supported(
    name: str, config: PreTrainedConfig, *, max_pixels: int | None, page_text: str | None
) -> None:
    """Refuse a model of another type, and settings of the other kind of page."""
    load_plugins()
    if config.model_type not in {*FAMILIES, *MODEL_CLASSES}:
        raise BackboneError(
            f"{name} is a model of type {config.model_type!r}; supported types: "
            f"{', '.join([*FAMILIES, *MODEL_CLASSES])}"
        )
    if max_pixels is not None and max_pixels < 1:
        raise BackboneError(f"a budget of {max_pixels} pixels a page, expected at least 1")
    if config.model_type in FAMILIES and page_text is not None:
        raise BackboneError(f"{name} looks at pages; a budget of text is not for it")
    if config.model_type in MODEL_CLASSES and max_pixels is not None:
        raise BackboneError(f"{name} reads the text of pages; a budget of pixels is not for it")


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
    stated, config = load_config(source, **options)
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
    loose = {name: written[name] for name in _ROTARY if name in written}
    # Releases of transformers have written them in three places.
    written_rotary = loose | (written.get("rope_scaling") or {}) | (written.get("rope_parameters") or {})
    values |= {name: (written_rotary[name], rotary.get(name)) for name in _ROTARY if name in written_rotary}
    if (kind := written_rotary.get("rope_type", written_rotary.get("type"))) is not None:
        values["rope_type"] = (_SAME.get(kind, kind), rotary.get("rope_type"))
    return [
        f"{name} is {in_file!r} there and {in_memory!r} here"
        for name, (in_file, in_memory) in values.items()
        if in_file is not None and in_file != in_memory
    ]


MAX_BYTES = 20 * 10**9
"""What converted models may take on disk, together."""
_EXPANSION = 9  # a file of four bits, and a little for steps, becomes float32


def convert_once(
    file: Path, convert: Callable[[Path, Path], None], max_bytes: int = MAX_BYTES
) -> Path | None:
    """The folder that a GGUF file was converted to, now or before; None and a warning if none is kept."""
    status = file.stat()
    digest = hashlib.blake2b(f"{status.st_size} {status.st_mtime_ns}".encode(), digest_size=6).hexdigest()
    target = cache_folder("gguf") / f"{file.stem}-{digest}"
    try:
        if target.exists():
            with suppress(OSError):  # a cache that may only be read serves as well
                os.utime(target)
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(target.parent).free < _EXPANSION * status.st_size:
            raise OSError(f"no room in {target.parent}")
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as scratch:
            folder = Path(scratch, "converted")
            folder.mkdir()
            convert(file, folder)
            with suppress(OSError):  # another process was faster
                folder.rename(target)
        _evict(target, max_bytes)
    except OSError as error:
        logger.warning("%s is not kept converted (%s); it is unpacked again", file, error)
        return None
    return target


def _evict(newest: Path, max_bytes: int) -> None:
    """Remove the folders that were not used for longest until the others fit, the newest always staying."""
    folders = [path for path in newest.parent.iterdir() if path.is_dir() and path.name[0] != "."]
    folders.sort(key=lambda path: (path != newest, -path.stat().st_mtime_ns))
    total = 0
    for folder in folders:
        total += sum(file.stat().st_size for file in folder.iterdir())
        if total > max_bytes and folder != newest:
            shutil.rmtree(folder, ignore_errors=True)
