"""The whole prompt in one forward of the library's own model: what the cut model has to equal."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer
from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string
from transformers.utils import ModelOutput

from ridgerank.backbones.base import Content
from ridgerank.backbones.load import FAMILIES
from ridgerank.backbones.text import TEXT_PROMPTS
from tests.backbones.small_models import Built
from tests.backbones.small_text_models import PROMPTS


@dataclass(frozen=True, slots=True)
class Whole:
    """Inputs of a one-shot forward, and where the page part ends in them."""

    inputs: dict[str, Any]
    positions: Tensor
    page_length: int
    visual: Tensor
    """(page_length,) bool: where the page itself stands."""

    @property
    def ids(self) -> Tensor:
        ids: Tensor = self.inputs["input_ids"][0]
        return ids


def whole_prompt(built: Built, page: Content, query: str, *, cue: bool = True) -> Whole:
    """Tokenize page and query with the library's tokenizer and image processor; the cue may be left out."""
    tokenizer = AutoTokenizer.from_pretrained(built.folder)

    def ids(string: str) -> list[int]:
        found: list[int] = tokenizer(string, add_special_tokens=False)["input_ids"]
        return found

    if isinstance(page, str):  # a text is tokenized by itself
        prompt = TEXT_PROMPTS[PROMPTS[built.family]]
        before, own = ids(prompt.before_page), ids(page.strip())
        text = prompt.instruction + query + (prompt.after_query if cue else "")
        input_ids = torch.tensor([[*before, *own, *ids(text)]])
        # The instruction's last token opens the suffix.
        page_length = len(before) + len(own) + len(ids(prompt.instruction)) - 1
        place = torch.arange(page_length)
        visual = (place >= len(before)) & (place < len(before) + len(own))
        return Whole({"input_ids": input_ids}, torch.arange(input_ids.shape[1])[None], page_length, visual)
    family = FAMILIES[built.family]
    processor = family.image_processor_class.from_pretrained(built.folder)
    prompt = family.prompt
    if built.family in ("idefics3", "smolvlm"):
        batch = processor(images=[[page]], return_row_col_info=True, return_tensors="pt")
        marks = "<fake_token_around_image>", "<image>", "<global-img>"
        image = get_image_prompt_string(batch.pop("rows")[0][0], batch.pop("cols")[0][0], 4, *marks)
        text = prompt.before_page + image + prompt.instruction
    else:
        batch = processor(images=[page], return_tensors="pt")
        token = "<|image|>" if built.family.startswith("glm") else "<|image_pad|>"
        image = token * (int(batch["image_grid_thw"].prod()) // 4)
        text = prompt.before_page + image + prompt.after_page + prompt.instruction
    input_ids = torch.tensor([ids(text + query + (prompt.after_query if cue else ""))])
    inputs = {"input_ids": input_ids, **batch}
    positions = torch.arange(input_ids.shape[1])[None]
    is_image = input_ids == built.model.config.image_token_id
    if "image_grid_thw" in batch:
        inputs["mm_token_type_ids"] = is_image.int()
        positions, _ = built.model.model.get_rope_index(input_ids, is_image.int(), batch["image_grid_thw"])
    page_length = len(ids(text)) - 1
    return Whole(inputs, positions, page_length, is_image[0, :page_length])


def one_shot(built: Built, whole: Whole, **more: Any) -> ModelOutput:  # noqa: ANN401 (as the forward takes)
    """The library's forward, all logits and all hidden states."""
    with torch.no_grad():
        return built.model(**whole.inputs, output_hidden_states=True, use_cache=False, **more)


def hide_from_suffix(whole: Whole, hidden: Tensor) -> dict[str, Tensor]:
    """Arguments of a forward in which no suffix position sees the page positions in the bool mask."""
    length = len(whole.ids)
    visible = torch.ones(length, length, dtype=torch.bool).tril()
    visible[whole.page_length :, : whole.page_length] &= ~hidden
    mask = torch.zeros(visible.shape).masked_fill(~visible, float("-inf"))[None, None]
    return {"attention_mask": mask, "position_ids": whole.positions}
