"""Small random models of exactly the supported classes, saved as a hub folder would be."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    BaseImageProcessor,
    Glm4vConfig,
    Glm4vForConditionalGeneration,
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
)
from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

LAYERS = 5
WIDTH = 64
HEADS = 4
KV_HEADS = 2

_SENTENCES = [
    "Above is a page of a document. Does it help to answer the query below?",
    "Answer with one word, yes or no.\nQuery:\n yes no user assistant system\n",
    "You are a helpful assistant. What was the revenue in 2023? 12345 67890 \n\n\n",
    "User: Assistant: yes Assistant: no",
] * 50

_CONTROL = {
    "qwen2_5_vl": [
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
        "<|vision_start|>",
        "<|vision_end|>",
        "<|image_pad|>",
        "<|video_pad|>",
    ],
    "glm4v": [
        "<|endoftext|>",
        "[gMASK]",
        "<sop>",
        "<|user|>",
        "<|assistant|>",
        "<|begin_of_image|>",
        "<|end_of_image|>",
        "<|image|>",
        "<|begin_of_video|>",
        "<|end_of_video|>",
        "<|video|>",
    ],
}
_CONTROL["idefics3"] = _CONTROL["smolvlm"] = [
    "<|endoftext|>",
    "<|begin_of_text|>",
    "<|im_start|>",
    "<end_of_utterance>",
    "<fake_token_around_image>",
    "<global-img>",
    "<image>",
    *(f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)),
]
_PLAIN_ADDED = {"glm4v": ["<think>", "</think>", "<answer>", "</answer>"]}
"""Added tokens that are not special: a tokenizer matches them even when told to split special ones."""

FAMILIES = ("qwen2_5_vl", "glm4v", "idefics3", "smolvlm")


@dataclass(frozen=True, slots=True)
class Built:
    """A model on disk, and the same weights in memory as the reference."""

    family: str
    folder: Path
    model: PreTrainedModel


def build(family: str, folder: Path) -> Built:
    """Make a model, its tokenizer and its image processor; save all three to `folder`."""
    tokenizer = train_tokenizer(_CONTROL[family], _PLAIN_ADDED.get(family, []))
    torch.manual_seed(7)
    model = _MODELS[family](tokenizer)
    shaken(model)
    model.eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _IMAGE_PROCESSORS[family].save_pretrained(folder)
    return Built(family, folder, model)


def shaken(model: PreTrainedModel) -> None:
    """Biases and norms start out trivial: make them matter."""
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.3)
        elif "norm" in name:
            torch.nn.init.normal_(parameter, mean=1.0, std=0.2)
        elif any(part in name for part in ("proj", "embed_tokens", "lm_head")):
            torch.nn.init.normal_(parameter, std=0.15)


def train_tokenizer(control: list[str], plain_added: list[str]) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer with these control tokens."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    backend.train_from_iterator(_SENTENCES, trainer)
    backend.add_special_tokens(control)
    backend.add_tokens(plain_added)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|endoftext|>", pad_token="<|endoftext|>"
    )


def text_settings(tokenizer: PreTrainedTokenizerFast, **more: object) -> dict[str, Any]:
    """The decoder's configuration."""
    return {
        "hidden_size": WIDTH,
        "intermediate_size": 96,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "vocab_size": len(tokenizer),
        "max_position_embeddings": 2048,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        **more,
    }


def _qwen(tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
    ids = tokenizer.convert_tokens_to_ids
    vision = {"depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2}
    config = Qwen2_5_VLConfig(
        text_config=text_settings(tokenizer, rope_parameters=rope),
        vision_config={**vision, "out_hidden_size": WIDTH, "fullatt_block_indexes": [1]},
        image_token_id=ids("<|image_pad|>"),
        video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"),
        vision_end_token_id=ids("<|vision_end|>"),
        tie_word_embeddings=False,
    )
    return Qwen2_5_VLForConditionalGeneration(config)


def _glm(tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    rope = {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5,
        "mrope_section": [1, 1, 2],
    }
    ids = tokenizer.convert_tokens_to_ids
    vision = {"depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "image_size": 112}
    config = Glm4vConfig(
        text_config=text_settings(tokenizer, rope_parameters=rope),
        vision_config={**vision, "out_hidden_size": WIDTH},
        image_token_id=ids("<|image|>"),
        video_token_id=ids("<|video|>"),
        image_start_token_id=ids("<|begin_of_image|>"),
        image_end_token_id=ids("<|end_of_image|>"),
        video_start_token_id=ids("<|begin_of_video|>"),
        video_end_token_id=ids("<|end_of_video|>"),
        tie_word_embeddings=False,
    )
    return Glm4vForConditionalGeneration(config)


def _tiled(
    config_class: type[PreTrainedConfig],
    model_class: type[PreTrainedModel],
    tokenizer: PreTrainedTokenizerFast,
) -> PreTrainedModel:
    config = config_class(
        text_config={"model_type": "llama", **text_settings(tokenizer)},
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 56,
            "patch_size": 14,
        },
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        pad_token_id=tokenizer.pad_token_id,
        scale_factor=2,
        tie_word_embeddings=False,
    )
    return model_class(config)


_MODELS: dict[str, Callable[[PreTrainedTokenizerFast], PreTrainedModel]] = {
    "qwen2_5_vl": _qwen,
    "glm4v": _glm,
    "idefics3": lambda tokenizer: _tiled(Idefics3Config, Idefics3ForConditionalGeneration, tokenizer),
    "smolvlm": lambda tokenizer: _tiled(SmolVLMConfig, SmolVLMForConditionalGeneration, tokenizer),
}

_TILES: dict[str, Any] = {"size": {"longest_edge": 150}, "max_image_size": {"longest_edge": 56}}
_IMAGE_PROCESSORS: dict[str, BaseImageProcessor] = {
    "qwen2_5_vl": Qwen2VLImageProcessorPil(),
    "glm4v": Glm4vImageProcessorPil(),
    "idefics3": Idefics3ImageProcessorPil(**_TILES),
    "smolvlm": SmolVLMImageProcessorPil(**_TILES),
}
