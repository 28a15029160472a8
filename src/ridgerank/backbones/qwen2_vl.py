"""Qwen2-VL, and the page rerankers tuned from it (`presets.py`)."""

from transformers import Qwen2VLForConditionalGeneration

from ridgerank.backbones.qwen2_5_vl import Qwen25VL


class Qwen2VL(Qwen25VL):
    """Qwen2-VL-2B, -7B, -72B: another vision tower than Qwen2.5-VL's, the rest is the same."""

    model_class = Qwen2VLForConditionalGeneration
