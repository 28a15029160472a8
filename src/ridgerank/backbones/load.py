"""From a name or a folder to a `Backbone`."""

import logging
from pathlib import Path

import torch
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.causal_text import MODEL_CLASSES, CausalText
from ridgerank.backbones.glm4v import Glm41V
from ridgerank.backbones.idefics3 import Idefics3, SmolVLM
from ridgerank.backbones.qwen2_5_vl import Qwen25VL
from ridgerank.backbones.text_budget import TextBudget
from ridgerank.backbones.text_prompts import choose_prompt, text_prompt
from ridgerank.backbones.visual import VisualBackbone
from ridgerank.errors import BackboneError
from ridgerank.shipped_models import BACKBONES, shipped_folder

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

FAMILIES: dict[str, type[VisualBackbone]] = {
    "qwen2_5_vl": Qwen25VL,
    "glm4v": Glm41V,
    "idefics3": Idefics3,
    "smolvlm": SmolVLM,
}
"""Families that look at pages, by the `model_type` of their configuration; `MODEL_CLASSES` read text."""


def load_backbone(
    name: str | Path,
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
    revision: str | None = None,
    max_pixels: int | None = None,
    page_text: str | None = None,
    prompt: str | None = None,
) -> Backbone:
    """Load a model by short name (`mini-qwen` comes with the package), by hub repository or from a folder.

    Device and dtype default to CUDA in bfloat16, else Apple's GPU, else the CPU, both in float32: weights
    trained in bfloat16 overflow float16. A folder with one `.gguf` file, or the file itself, is read by
    transformers' own loader.
    `max_pixels` is the pixel budget of a page image; the default suits the family, and is never above what
    the model's own processor says. For models that read text, `page_text` is how much of it (`head 512`),
    and `prompt` one of `TEXT_PROMPTS`.
    """
    source, weights = _resolve(str(name))
    options = {"revision": revision} | ({"gguf_file": weights} if weights else {})
    device, dtype = placement(device, dtype)
    try:
        config = AutoConfig.from_pretrained(source, **options)
        _require_supported(str(name), config, max_pixels=max_pixels, page_text=page_text, prompt=prompt)
        tokenizer = AutoTokenizer.from_pretrained(source, **options)
        family = FAMILIES.get(config.model_type)
        if family is not None:
            image_processor = family.image_processor_class.from_pretrained(source, revision=revision)
        model_class = family.model_class if family is not None else MODEL_CLASSES[config.model_type]
        model = model_class.from_pretrained(source, dtype=dtype, **options)
    except (OSError, ValueError, ImportError) as error:
        first_line = str(error).strip().partition("\n")[0]
        advice = "Check the name and the connection, or download it once and give its folder."
        if weights and isinstance(error, ImportError):
            advice = "Install what reads GGUF with: pip install 'ridgerank[gguf]'"
        raise BackboneError(
            f"cannot load the backbone {str(name)!r} from {source!r}: {first_line} {advice}"
        ) from error
    model = model.eval().to(device)
    logger.info("loaded %s (%s) on %s in %s", name, config.model_type, device, dtype)
    if family is None:
        control = {token.content for token in tokenizer.backend_tokenizer.get_added_tokens_decoder().values()}
        return CausalText(
            str(name),
            model,
            tokenizer,
            prompt=text_prompt(prompt or choose_prompt(str(name), control)),
            budget=TextBudget.parse(page_text) if page_text else TextBudget(),
        )
    default = family.default_max_pixels
    if max_pixels is not None:
        family.limit_pixels(image_processor, max_pixels)
    elif default is not None and default < family.pixel_budget(image_processor):
        family.limit_pixels(image_processor, default)
    return family(str(name), model, tokenizer, image_processor)


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
    """Where a model runs and with what numbers, the best there is where nothing was asked for."""
    chosen = _usable(device) if device is not None else _best_device()
    return chosen, dtype or (torch.bfloat16 if chosen.type == "cuda" else torch.float32)


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


def _resolve(name: str) -> tuple[str, str | None]:
    """Find the folder or repository, and the GGUF file in it if that is all; a bare word is a short name."""
    if name.lower() in SHORT_NAMES:
        return SHORT_NAMES[name.lower()], None
    if (folder := shipped_folder(name.lower())) is not None:
        return str(folder), None
    path = Path(name)
    if path.suffix == ".gguf" and path.is_file():
        return str(path.parent), path.name
    if path.is_dir():
        packed = sorted(path.glob("*.gguf"))
        if len(packed) == 1 and not (path / "config.json").exists():
            return name, packed[0].name
        if len(packed) > 1 and not (path / "config.json").exists():
            raise BackboneError(
                f"{name} holds {len(packed)} GGUF files, {', '.join(each.name for each in packed)}; name one"
            )
        return name, None
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise BackboneError(
            f"no backbone called {name!r}, and no such folder; known names: "
            f"{', '.join((*BACKBONES, *SHORT_NAMES))}, "
            "or a repository as owner/name"
        )
    return name, None


def _require_supported(
    name: str, config: PreTrainedConfig, *, max_pixels: int | None, page_text: str | None, prompt: str | None
) -> None:
    """Refuse a model of another type, and settings of the other kind of page."""
    if config.model_type not in {*FAMILIES, *MODEL_CLASSES}:
        raise BackboneError(
            f"{name} is a model of type {config.model_type!r}; supported types: "
            f"{', '.join([*FAMILIES, *MODEL_CLASSES])}"
        )
    if config.model_type in FAMILIES and (page_text is not None or prompt is not None):
        raise BackboneError(f"{name} looks at pages; a budget of text or another prompt is not for it")
    if config.model_type in MODEL_CLASSES and max_pixels is not None:
        raise BackboneError(f"{name} reads the text of pages; a budget of pixels is not for it")
