"""From a name or a folder to a `MultiVectorEncoder`."""

import json
import logging
from pathlib import Path

import torch
from transformers import AutoConfig, AutoTokenizer, ProcessorMixin
from transformers.utils.peft_utils import find_adapter_config_file

from ridgerank.backbones.load import placement
from ridgerank.errors import RetrieverError
from ridgerank.retrievers.encoders.base import MultiVectorEncoder
from ridgerank.retrievers.encoders.families import ColPali, ColQwen2, ColQwen25, load_adapted_model

logger = logging.getLogger(__name__)

SHORT_NAMES = {
    "colpali-v1.3": "vidore/colpali-v1.3-hf",
    "colqwen2-v1.0": "vidore/colqwen2-v1.0-hf",
    "colnomic-3b": "nomic-ai/colnomic-embed-multimodal-3b",
    "colnomic-7b": "nomic-ai/colnomic-embed-multimodal-7b",
}
"""Short name → hub repository."""

FAMILIES: dict[str, type[ColPali | ColQwen2]] = {"colpali": ColPali, "colqwen2": ColQwen2}
"""Families by the `model_type` of their configuration."""

ADAPTED = {"qwen2_5_vl": ColQwen25}
"""Families published as an adapter, by the `model_type` of its base."""


def load_encoder(
    name: str | Path,
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
    revision: str | None = None,
) -> MultiVectorEncoder:
    """Load a late interaction model by short name, hub repository or folder.

    Device and dtype default as for a backbone.
    """
    source = _resolve(str(name))
    device, dtype = placement(device, dtype)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, revision=revision)
        settings, _ = ProcessorMixin.get_processor_dict(source, revision=revision)
        adapter = find_adapter_config_file(source, revision=revision)
        family: type[ColPali | ColQwen2 | ColQwen25]
        if adapter is not None:
            base = _base_of(source, Path(adapter))
            family, model = ColQwen25, load_adapted_model(source, base, dtype=dtype, revision=revision)
        else:
            family = native = _family(source, revision)
            model = native.model_class.from_pretrained(source, revision=revision, dtype=dtype)
        image_processor = family.image_processor_class.from_pretrained(source, revision=revision)
    except (OSError, ValueError) as error:
        first_line = str(error).strip().partition("\n")[0]
        raise RetrieverError(
            f"cannot load the retriever {str(name)!r} from {source!r}: {first_line} "
            "Check the name and the connection, or download it once and give its folder."
        ) from error
    logger.info("loaded %s (%s) on %s in %s", name, family.__name__, device, dtype)
    model = model.eval().requires_grad_(False).to(device)
    prompt = family.prompt(model, tokenizer, settings)
    return family(source, model, tokenizer, image_processor, prompt)


def _resolve(name: str) -> str:
    """Find the folder or repository; a bare word has to be a short name."""
    if name.lower() == "bm25" or name.startswith("dense:"):
        raise RetrieverError(
            f"{name} reads the text of pages and makes no vectors of their images: leave it out"
        )
    if name.lower() in SHORT_NAMES:
        return SHORT_NAMES[name.lower()]
    if Path(name).is_dir():
        return str(Path(name).resolve())
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise RetrieverError(
            f"no retriever called {name!r}, and no such folder; known: bm25, dense:NAME, "
            f"{', '.join(SHORT_NAMES)}, or a repository as owner/name"
        )
    return name


def _family(source: str, revision: str | None) -> type[ColPali | ColQwen2]:
    model_type = AutoConfig.from_pretrained(source, revision=revision).model_type
    if model_type not in FAMILIES:
        raise RetrieverError(
            f"{source} is a model of type {model_type!r}, which is no retriever known here; known types: "
            f"{', '.join(FAMILIES)}, and adapters on {', '.join(ADAPTED)}"
        )
    return FAMILIES[model_type]


def _base_of(source: str, adapter: Path) -> str:
    """Name the base an adapter tunes; a base of an unknown family is refused before anything is loaded."""
    base: str = json.loads(adapter.read_text(encoding="utf-8"))["base_model_name_or_path"]
    model_type = AutoConfig.from_pretrained(base).model_type
    if model_type not in ADAPTED:
        raise RetrieverError(
            f"{source} is an adapter on {base}, a model of type {model_type!r}; known adapters are those on "
            f"{', '.join(ADAPTED)} (of ColPali, the repository that ends in -hf needs none)"
        )
    return base
