"""Small random causal language models of the three classes, saved as a hub folder would be."""

from pathlib import Path

import torch
from transformers import PreTrainedModel

from ridgerank.backbones.text import MODEL_CLASSES
from tests.backbones.small_models import Built, shaken, text_settings, train_tokenizer

CLASSES = tuple(MODEL_CLASSES)
CONTROL = {
    "llama": ["<|endoftext|>"],
    "mistral": ["<|endoftext|>"],
    "qwen2": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    "qwen3": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
}
THINKING = {"qwen3": ["<think>", "</think>"]}
PROMPTS = {"llama": "plain", "qwen2": "chatml", "qwen3": "qwen3"}
"""The prompt each is expected to get."""


def build_text(family: str, folder: Path) -> Built:
    """Make a model and its tokenizer; save both to `folder`."""
    tokenizer = train_tokenizer(CONTROL[family], THINKING.get(family, []))
    torch.manual_seed(11)
    model_class = MODEL_CLASSES[family]
    more = {"head_dim": 24} if family == "qwen3" else {}
    model: PreTrainedModel = model_class(
        model_class.config_class(**text_settings(tokenizer), **more, tie_word_embeddings=family == "llama")
    )
    shaken(model)
    model.eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Built(family, folder, model)
