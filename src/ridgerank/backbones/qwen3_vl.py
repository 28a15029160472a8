"""Qwen3-VL: patches of 16 pixels, and vision features added behind the first layers (DeepStack).

Norms of queries and keys and the interleaved rotary axes need no words here: a `Block` carries the norms, and
the model's own rotary module lays the axes out.
"""

from transformers import Qwen3VLForConditionalGeneration

from ridgerank.backbones.prompt import INSTRUCTION, Prompt
from ridgerank.backbones.qwen2_5_vl import Qwen25VL


class Qwen3VL(Qwen25VL):
    """Qwen3-VL-2B, -4B, -8B, -32B Instruct; its chat template has no system turn."""

    prompt = Prompt(
        before_page="<|im_start|>user\n<|vision_start|>",
        after_page="<|vision_end|>",
        instruction=INSTRUCTION,
        after_query="<|im_end|>\n<|im_start|>assistant\n",
        answers=("yes", "no"),
    )
    model_class = Qwen3VLForConditionalGeneration
    default_max_pixels = 1280 * 32 * 32
