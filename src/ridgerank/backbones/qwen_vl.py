"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL."""

from dataclasses import replace

from transformers import (
    BaseImageProcessor,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLForConditionalGeneration,
    Qwen3VLForConditionalGeneration,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from ridgerank.backbones.decoder import Decoder, llama_block, rotate_halves
from ridgerank.backbones.prompt import INSTRUCTION, Prompt
from ridgerank.backbones.vision import GridBackbone
from ridgerank.errors import BackboneError


class Qwen25VL(GridBackbone):
    """Qwen2.5-VL-3B, -7B, -32B, -72B."""

    prompt = Prompt(
        before_page=(
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n<|vision_start|>"
        ),
        after_page="<|vision_end|>",
        instruction=INSTRUCTION,
        after_query="<|im_end|>\n<|im_start|>assistant\n",
        answers=("yes", "no"),
    )
    model_class = Qwen2_5_VLForConditionalGeneration
    image_processor_class = Qwen2VLImageProcessorPil
    default_max_pixels = 1280 * 28 * 28
    image_token = "<|image_pad|>"

    @classmethod
    def pixel_budget(cls, image_processor: BaseImageProcessor) -> int:
        """The pixel budget; the processor calls it its longest edge."""
        return int(image_processor.size["longest_edge"])

    @classmethod
    def limit_pixels(cls, image_processor: BaseImageProcessor, max_pixels: int) -> None:
        """Set the pixel budget; the processor calls it its longest edge."""
        image_processor.size = image_processor.size | {"longest_edge": max_pixels}

    def _build_decoder(self) -> Decoder:
        text = self._text_model()
        if getattr(text, "has_sliding_layers", False):
            raise BackboneError(f"{self.name} has sliding-window layers, which stored pages do not support")
        blocks = [llama_block(layer) for layer in text.layers]
        return Decoder(blocks, self.geometry, rotary=text.rotary_emb, rotate=rotate_halves)


class Qwen2VL(Qwen25VL):
    """Qwen2-VL-2B, -7B, -72B: another vision tower than Qwen2.5-VL's, the rest is the same."""

    model_class = Qwen2VLForConditionalGeneration


class Qwen3VL(Qwen25VL):
    """Qwen3-VL-2B, -4B, -8B, -32B Instruct; its chat template has no system turn."""

    prompt = replace(Qwen25VL.prompt, before_page="<|im_start|>user\n<|vision_start|>")
    model_class = Qwen3VLForConditionalGeneration
    default_max_pixels = 1280 * 32 * 32
