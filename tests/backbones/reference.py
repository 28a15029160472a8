"""The whole prompt in one forward of the library's own model: what the cut model has to equal."""

from dataclasses import dataclass
from typing import Any

import torch
from PIL.Image import Image
from torch import Tensor
from transformers import AutoTokenizer
from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string
from transformers.utils import ModelOutput

from ridgerank.backbones.load import FAMILIES
from tests.backbones.small_models import Built


@dataclass(frozen=True, slots=True)
class Whole:
    """Inputs of a one-shot forward, and where the page part ends in them."""

    inputs: dict[str, Any]
    positions: Tensor
    page_length: int

    @property
    def length(self) -> int:
        return int(self.inputs["input_ids"].shape[1])


def whole_prompt(built: Built, image: Image, query: str) -> Whole:
    """Tokenize page and query in one piece, with the library's tokenizer and image processor."""
    family = FAMILIES[built.family]
    tokenizer = AutoTokenizer.from_pretrained(built.folder)
    processor = family.image_processor_class.from_pretrained(built.folder)
    prompt = family.prompt
    if built.family in ("idefics3", "smolvlm"):
        batch = processor(images=[[image]], return_row_col_info=True, return_tensors="pt")
        marks = "<fake_token_around_image>", "<image>", "<global-img>"
        page = get_image_prompt_string(batch.pop("rows")[0][0], batch.pop("cols")[0][0], 4, *marks)
        text = prompt.before_page + page + prompt.instruction
    else:
        batch = processor(images=[image], return_tensors="pt")
        token = "<|image|>" if built.family.startswith("glm") else "<|image_pad|>"
        page = token * (int(batch["image_grid_thw"].prod()) // 4)
        text = prompt.before_page + page + prompt.after_page + prompt.instruction

    def ids(string: str) -> list[int]:
        found: list[int] = tokenizer(string, add_special_tokens=False)["input_ids"]
        return found

    input_ids = torch.tensor([ids(text + query + prompt.after_query)])
    inputs = {"input_ids": input_ids, **batch}
    positions = torch.arange(input_ids.shape[1])[None]
    if "image_grid_thw" in batch:
        types = (input_ids == built.model.config.image_token_id).int()
        inputs["mm_token_type_ids"] = types
        positions, _ = built.model.model.get_rope_index(input_ids, types, batch["image_grid_thw"])
    # The instruction's last token opens the suffix.
    return Whole(inputs, positions, len(ids(text)) - 1)


def one_shot(built: Built, whole: Whole, **more: Tensor) -> ModelOutput:
    """The library's forward, all logits and all hidden states."""
    with torch.no_grad():
        return built.model(**whole.inputs, output_hidden_states=True, use_cache=False, **more)


def causal_mask(whole: Whole, hidden_from_suffix: Tensor) -> Tensor:
    """(1, 1, length, length): causal, and no suffix position sees the page positions in the bool mask."""
    visible = torch.ones(whole.length, whole.length, dtype=torch.bool).tril()
    visible[whole.page_length :, : whole.page_length] &= ~hidden_from_suffix
    return torch.zeros(visible.shape).masked_fill(~visible, float("-inf"))[None, None]
