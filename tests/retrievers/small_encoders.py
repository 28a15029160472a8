"""Small random late interaction models of exactly the supported classes, saved as a hub folder would be."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peft
import torch
from transformers import (
    BaseImageProcessor,
    ColPaliConfig,
    ColPaliForRetrieval,
    ColQwen2Config,
    ColQwen2ForRetrieval,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2VLConfig,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from ridgerank.retrievers.encoders import ProjectedQwen25
from tests.backbones.small_models import QWEN_TOKENS, shaken, train_tokenizer

WIDTH = 48
_GEMMA_TOKENS = ["<pad>", "<eos>", "<bos>", "<image>"]
_TEXT = {"hidden_size": WIDTH, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
_QWEN_IMAGES = Qwen2VLImageProcessorPil(size={"shortest_edge": 28 * 28, "longest_edge": 24 * 28 * 28})
LORA_TARGETS = (
    "(.*(model).*(down_proj|gate_proj|up_proj|k_proj|q_proj|v_proj|o_proj).*$|.*(custom_text_proj).*$)"
)
"""As published with ColQwen2.5 and ColNomic."""


@dataclass(frozen=True, slots=True)
class Built:
    """A model on disk, and what the same weights are in memory, as the reference."""

    folder: Path
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    image_processor: BaseImageProcessor


def build(family: str, folder: Path, **settings: str) -> Built:
    """Make a model, its tokenizer and its image processor; save all, and processor settings if any."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(_GEMMA_TOKENS if family == "colpali" else QWEN_TOKENS, [])
    torch.manual_seed(3)
    model, image_processor = _BUILDERS[family](tokenizer)
    shaken(model)
    model.eval()
    for part in (model, tokenizer, image_processor):
        part.save_pretrained(folder)
    if settings:
        (folder / "processor_config.json").write_text(json.dumps(settings))
    return Built(folder, model, tokenizer, image_processor)


def build_adapted(folder: Path, *, old_names: bool, replaces_projection: bool = False) -> Built:
    """A base with a projection, and an adapter on it; the reference has the adapter merged in.

    With `old_names` the tensors are called as in the first releases of ColQwen2.5.
    """
    base = folder / "base"
    built = build("colqwen2_5 base", base)
    model = built.model
    if old_names:
        _rename(base / "model.safetensors", "language_model.", "model.")
    targets = LORA_TARGETS.partition("|.*(custom")[0] + ")" if replaces_projection else LORA_TARGETS
    saved = ["custom_text_proj"] if replaces_projection else None
    config = peft.LoraConfig(
        r=4, lora_alpha=8, target_modules=targets, base_model_name_or_path=str(base), modules_to_save=saved
    )
    model.name_or_path = str(base)
    adapted = peft.get_peft_model(model, config)
    torch.manual_seed(5)
    for name, parameter in adapted.named_parameters():
        if "lora" in name or "modules_to_save" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    adapter = folder / "adapter"
    adapted.save_pretrained(adapter)
    if old_names:
        _rename(
            adapter / "adapter_model.safetensors",
            "base_model.model.language_model.",
            "base_model.model.model.",
        )
    built.tokenizer.save_pretrained(adapter)
    built.image_processor.save_pretrained(adapter)
    merged = adapted.merge_and_unload().eval()
    return Built(adapter, merged, built.tokenizer, built.image_processor)


def _rename(path: Path, old: str, new: str) -> None:
    from safetensors.torch import load_file, save_file

    tensors = {name.replace(old, new, 1): value for name, value in load_file(path).items()}
    save_file(tensors, path, metadata={"format": "pt"})


def _vlm(config_class: type[Any], tokenizer: PreTrainedTokenizerFast) -> Any:  # noqa: ANN401
    ids = tokenizer.convert_tokens_to_ids
    vision: dict[str, Any] = {"depth": 2, "num_heads": 2}
    if config_class is Qwen2VLConfig:
        vision |= {"embed_dim": 32, "hidden_size": WIDTH, "mlp_ratio": 2}
    else:
        vision |= {
            "hidden_size": 32,
            "intermediate_size": 48,
            "out_hidden_size": WIDTH,
            "fullatt_block_indexes": [1],
        }
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 2, 2]}
    text = {**_TEXT, "num_key_value_heads": 2, "vocab_size": len(tokenizer), "rope_parameters": rope}
    return config_class(
        text_config={**text, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None, "eos_token_id": 1},
        vision_config=vision,
        image_token_id=ids("<|image_pad|>"),
        video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"),
        vision_end_token_id=ids("<|vision_end|>"),
    )


def _colqwen2(config_class: type[Any]) -> Callable[[PreTrainedTokenizerFast], tuple[PreTrainedModel, Any]]:
    def make(tokenizer: PreTrainedTokenizerFast) -> tuple[PreTrainedModel, Any]:
        config = ColQwen2Config(vlm_config=_vlm(config_class, tokenizer).to_dict(), embedding_dim=16)
        return ColQwen2ForRetrieval(config), _QWEN_IMAGES

    return make


def _colqwen2_5_base(tokenizer: PreTrainedTokenizerFast) -> tuple[PreTrainedModel, Any]:
    return ProjectedQwen25(_vlm(Qwen2_5_VLConfig, tokenizer)), _QWEN_IMAGES


def _colpali(tokenizer: PreTrainedTokenizerFast) -> tuple[PreTrainedModel, Any]:
    vision = {
        "model_type": "siglip_vision_model", "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 56, "patch_size": 14,
        "projection_dim": WIDTH, "vision_use_head": False,
    }  # fmt: skip
    text = {
        "model_type": "gemma",
        **_TEXT,
        "num_key_value_heads": 1,
        "head_dim": 12,
        "vocab_size": len(tokenizer),
    }
    vlm = {
        "model_type": "paligemma",
        "text_config": {**text, "pad_token_id": tokenizer.pad_token_id},
        "vision_config": vision,
        "projection_dim": WIDTH,
        "image_token_id": tokenizer.convert_tokens_to_ids("<image>"),
    }
    config = ColPaliConfig(vlm_config=vlm, embedding_dim=16)
    images = SiglipImageProcessorPil(size={"height": 56, "width": 56}, image_seq_length=16)
    return ColPaliForRetrieval(config), images


_BUILDERS: dict[str, Callable[[PreTrainedTokenizerFast], tuple[PreTrainedModel, Any]]] = {
    "colpali": _colpali,
    "colqwen2": _colqwen2(Qwen2VLConfig),
    "colqwen2 on 2.5": _colqwen2(Qwen2_5_VLConfig),
    "colqwen2_5 base": _colqwen2_5_base,
}
