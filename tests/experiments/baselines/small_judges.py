"""A small random MonoQwen2-VL as published: a base of the real class, and an adapter under its old names."""

from dataclasses import dataclass
from pathlib import Path

import peft
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, BaseImageProcessor, PreTrainedModel, PreTrainedTokenizerFast
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from tests.backbones.small_models import build


@dataclass(frozen=True, slots=True)
class BuiltJudge:
    """An adapter on disk; the model has it merged in."""

    adapter: Path
    base: Path
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    image_processor: BaseImageProcessor


def build_mono_qwen(folder: Path) -> BuiltJudge:
    """Make base and adapter; the adapter's tensors are named as when MonoQwen2-VL was published."""
    base, adapter = folder / "base", folder / "adapter"
    model = build("qwen2_vl", base).model
    tokenizer = AutoTokenizer.from_pretrained(base)
    image_processor = Qwen2VLImageProcessorPil(
        size={"shortest_edge": 4 * 28 * 28, "longest_edge": 40 * 28 * 28}
    )
    image_processor.save_pretrained(base)
    settings = peft.LoraConfig(
        r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], base_model_name_or_path=str(base)
    )
    model.name_or_path = str(base)
    adapted = peft.get_peft_model(model, settings)
    for name, parameter in adapted.named_parameters():
        if "lora" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    adapted.save_pretrained(adapter)
    weights = load_file(adapter / "adapter_model.safetensors")
    renamed = {name.replace("model.language_model.layers", "model.layers"): w for name, w in weights.items()}
    assert set(renamed) != set(weights)
    save_file(renamed, adapter / "adapter_model.safetensors", metadata={"format": "pt"})
    return BuiltJudge(adapter, base, adapted.merge_and_unload().eval(), tokenizer, image_processor)
