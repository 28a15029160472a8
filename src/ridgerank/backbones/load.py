"""From a name or a folder to a `Backbone`."""

import logging
from pathlib import Path

import torch
from transformers import AutoConfig, AutoTokenizer

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.glm4v import Glm41V
from ridgerank.backbones.idefics3 import Idefics3, SmolVLM
from ridgerank.backbones.qwen2_5_vl import Qwen25VL
from ridgerank.errors import BackboneError

logger = logging.getLogger(__name__)

SHORT_NAMES = {
    "qwen2.5-vl-3b": "Qwen/Qwen2.5-VL-3B-Instruct",
    "qwen2.5-vl-7b": "Qwen/Qwen2.5-VL-7B-Instruct",
    "glm-4.1v-9b": "zai-org/GLM-4.1V-9B-Thinking",
    "idefics3-8b": "HuggingFaceM4/Idefics3-8B-Llama3",
    "smolvlm-256m": "HuggingFaceTB/SmolVLM-256M-Instruct",
    "smolvlm-500m": "HuggingFaceTB/SmolVLM-500M-Instruct",
    "smolvlm-2b": "HuggingFaceTB/SmolVLM-Instruct",
}
"""What people type, and the repository it stands for."""

FAMILIES: dict[str, type[Backbone]] = {
    "qwen2_5_vl": Qwen25VL,
    "glm4v": Glm41V,
    "idefics3": Idefics3,
    "smolvlm": SmolVLM,
}
"""Families by the `model_type` of their configuration."""


def load_backbone(
    name: str | Path,
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
    revision: str | None = None,
    max_pixels: int | None = None,
) -> Backbone:
    """Load a model by short name, by hub repository (`owner/name`) or from a folder.

    Device and dtype default to CUDA in bfloat16, else Apple's GPU, else the CPU, both in float32: weights
    trained in bfloat16 overflow float16.
    `max_pixels` is the pixel budget of a page image; the default suits the family.
    """
    source = _resolve(str(name))
    device = _usable(device) if device is not None else _best_device()
    dtype = dtype or (torch.bfloat16 if device.type == "cuda" else torch.float32)
    try:
        config = AutoConfig.from_pretrained(source, revision=revision)
        family = _family(str(name), config.model_type)
        tokenizer = AutoTokenizer.from_pretrained(source, revision=revision)
        image_processor = family.image_processor_class.from_pretrained(source, revision=revision)
        model = family.model_class.from_pretrained(source, revision=revision, dtype=dtype)
    except (OSError, ValueError) as error:
        first_line = str(error).strip().partition("\n")[0]
        raise BackboneError(
            f"cannot load the backbone {str(name)!r} from {source!r}: {first_line} "
            "Check the name and the connection, or download it once and give its folder."
        ) from error
    budget = max_pixels if max_pixels is not None else family.default_max_pixels
    if budget is not None:
        family.limit_pixels(image_processor, budget)
    logger.info("loaded %s (%s) on %s in %s", name, family.__name__, device, dtype)
    return family(str(name), model.eval().to(device), tokenizer, image_processor)


def parse_dtype(name: str | None) -> torch.dtype | None:
    """A dtype by the name people write, None where none was given."""
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if name is None:
        return None
    if name not in known:
        raise BackboneError(f"no dtype called {name!r}; known: {', '.join(known)}")
    return known[name]


def _usable(name: str | torch.device) -> torch.device:
    """A device by its name, refused where this machine does not have it."""
    have = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or not have.get(device.type, False):
        usable = ", ".join(kind for kind, there in have.items() if there)
        raise BackboneError(f"no device {str(name)!r} on this machine; there is {usable}")
    return device


def _best_device() -> torch.device:
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def _resolve(name: str) -> str:
    """Find the folder or repository; a bare word has to be a short name."""
    if name.lower() in SHORT_NAMES:
        return SHORT_NAMES[name.lower()]
    if Path(name).is_dir():
        return name
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise BackboneError(
            f"no backbone called {name!r}, and no such folder; known names: {', '.join(SHORT_NAMES)}, "
            "or a repository as owner/name"
        )
    return name


def _family(name: str, model_type: str) -> type[Backbone]:
    if model_type not in FAMILIES:
        raise BackboneError(
            f"{name} is a model of type {model_type!r}; supported types: {', '.join(FAMILIES)}"
        )
    return FAMILIES[model_type]
