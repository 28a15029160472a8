"""MonoQwen2-VL: Qwen2-VL-2B with an adapter, tuned to answer True or False to a page image and a query.

Published as a peft adapter; image processor and tokenizer are the base's. The page comes first, then the
question, and the score is the probability of True among the two answers at the next token, as published.
"""

from collections.abc import Sequence

import numpy as np
import torch
from PIL.Image import Image
from transformers import (
    AutoTokenizer,
    BaseImageProcessor,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2VLForConditionalGeneration,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from experiments.baselines.qwen3_reranker import AnswerModel, explain_load_error
from ridgerank.backbones.load import placement
from ridgerank.backbones.vision import Qwen25VL
from ridgerank.backbones.weights import NO_CODE, apply_adapter, find_adapter_base
from ridgerank.errors import BackboneError
from ridgerank.ragged import Floats

REPOSITORY = "lightonai/MonoQwen2-VL-v0.1"
BEFORE = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n<|vision_start|>"
IMAGE, AFTER_IMAGE = "<|image_pad|>", "<|vision_end|>"
QUESTION = (
    "Assert the relevance of the previous image document to the following query, answer True or False. "
    "The query is: {query}"
)
AFTER = "<|im_end|>\n<|im_start|>assistant\n"
ANSWERS = ("True", "False")
MAX_PIXELS = 2048 * 28 * 28
"""Pixel budget of a page, as the authors of GQR ran it."""


class MonoQwen(AnswerModel):
    """The model with its tokenizer and image processor; knows no store."""

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, image_processor: BaseImageProcessor
    ) -> None:
        super().__init__(model, tokenizer, ANSWERS)
        self._image_processor = image_processor
        self.max_pixels = int(image_processor.size["longest_edge"])
        self.page_budget = Qwen25VL.page_sizing(image_processor)

    def judge(self, query: str, images: Sequence[Image]) -> Floats:
        """Probabilities (images,) of True against False, one page at a time as published."""
        return np.array([self._probability(query, image) for image in images], dtype=np.float64)

    def prompt_ids(self, query: str, visual_positions: int) -> list[int]:
        """Tokens of the whole prompt with `visual_positions` visual positions."""
        question = self._plain.encode(QUESTION.format(query=query.strip()), add_special_tokens=False)
        page = self._ids(BEFORE + IMAGE * visual_positions + AFTER_IMAGE)
        return [*page, *question.ids, *self._ids(AFTER)]

    def _probability(self, query: str, image: Image) -> float:
        batch = self._image_processor(images=[image], return_tensors="pt").to(self._model.device)
        positions = int(batch["image_grid_thw"].prod()) // self._image_processor.merge_size**2
        ids = torch.tensor([self.prompt_ids(query, positions)], device=self._model.device)
        # Without the token types the page would be placed along one axis, like text.
        types = (ids == self._model.config.image_token_id).int()
        with torch.inference_mode():
            logits = self._model(
                input_ids=ids, mm_token_type_ids=types, **batch, use_cache=False, logits_to_keep=1
            ).logits[0, -1, self._answers]
        return float(logits.double().softmax(dim=0)[0])


def load_mono_qwen(source: str = REPOSITORY, *, device: str | torch.device | None = None) -> MonoQwen:
    """Load the adapter and the base it names, by repository or folder."""
    where, numbers = placement(device, None)
    try:
        base = find_adapter_base(source, None)
        if base is None:
            raise BackboneError(f"{source} holds no adapter_config.json; wanted MonoQwen2-VL as published")
        tokenizer = AutoTokenizer.from_pretrained(base, **NO_CODE)
        image_processor = Qwen2VLImageProcessorPil.from_pretrained(base)
        model = Qwen2VLForConditionalGeneration.from_pretrained(base, dtype=numbers)
    except (OSError, ValueError) as error:
        raise explain_load_error(source, error) from error
    apply_adapter(model, source, None, renamed=Qwen25VL.former_names)
    longest_edge = int(image_processor.size["longest_edge"])
    image_processor.size = image_processor.size | {"longest_edge": min(longest_edge, MAX_PIXELS)}
    return MonoQwen(model.eval().requires_grad_(False).to(where), tokenizer, image_processor)
