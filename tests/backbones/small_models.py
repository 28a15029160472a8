"""Small random models of exactly the supported classes, saved as a hub folder would be."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedModel, PreTrainedTokenizerFast
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

from ridgerank.backbones import load

LAYERS = 5
WIDTH = 64
HEADS = 4
KV_HEADS = 2

_SENTENCES = [
    "Above is a page of a document. Does it help to answer the query below?",
    "Answer with one word, yes or no.\nQuery:\n yes no user assistant system\n",
    "You are a helpful assistant. What was the revenue in 2023? 12345 67890 \n\n\n",
    "User: Assistant: yes Assistant: no",
    "True\nFalse\n",
] * 50

_QWEN = "<|endoftext|> <|im_start|> <|im_end|> <|vision_start|> <|vision_end|> <|image_pad|> <|video_pad|>"
QWEN_TOKENS = _QWEN.split()
_GLM = (
    "<|endoftext|> [gMASK] <sop> <|user|> <|assistant|> <|begin_of_image|> <|end_of_image|> <|image|> "
    "<|begin_of_video|> <|end_of_video|> <|video|>"
)
_TILED = [
    *["<|endoftext|>", "<|begin_of_text|>", "<|im_start|>", "<end_of_utterance>"],
    *["<fake_token_around_image>", "<global-img>", "<image>"],
    *(f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)),
]
_CONTROL = {
    **dict.fromkeys(["qwen2_5_vl", "qwen2_vl", "qwen3_vl"], QWEN_TOKENS),
    **dict.fromkeys(["glm4v", "glm46v"], _GLM.split()),
    **dict.fromkeys(["idefics3", "smolvlm"], _TILED),
}
_PLAIN_ADDED = {family: ["<think>", "</think>", "<answer>", "</answer>"] for family in ("glm4v", "glm46v")}
"""Added tokens that are not special: a tokenizer matches them even when told to split special ones."""

FAMILIES = ("qwen2_5_vl", "glm4v", "qwen2_vl", "qwen3_vl", "glm46v", "idefics3", "smolvlm")


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
    model_class = load.FAMILIES[family].model_class
    model = model_class(model_class.config_class(**_settings(family, tokenizer), tie_word_embeddings=False))
    shaken(model)
    model.eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    processor_class = load.FAMILIES[family].image_processor_class
    processor_class(**_PROCESSOR_SETTINGS.get(family, {})).save_pretrained(folder)
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
    pad, eos = ("<pad>", "<eos>") if "<pad>" in control else ("<|endoftext|>", "<|endoftext|>")
    named = {"bos_token": "<bos>"} if "<bos>" in control else {}
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=eos, pad_token=pad, **named)


def text_settings(tokenizer: PreTrainedTokenizerFast, **more: object) -> dict[str, Any]:
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


_VISION: dict[str, dict[str, Any]] = {
    "qwen2_5_vl": {"hidden_size": 32, "intermediate_size": 48, "out_hidden_size": WIDTH}
    | {"fullatt_block_indexes": [1]},
    "qwen2_vl": {"embed_dim": 32, "hidden_size": WIDTH, "mlp_ratio": 2},
    "qwen3_vl": {"hidden_size": 32, "intermediate_size": 48, "out_hidden_size": WIDTH}
    | {"deepstack_visual_indexes": [0, 1], "num_position_embeddings": 64},
}


def _settings(family: str, tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    """The configuration of a family, with the ids of its tokens."""
    ids = tokenizer.convert_tokens_to_ids
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": 10000.0}
    if family in _VISION:
        rope |= {"mrope_section": [2, 3, 3]}
        more = {"head_dim": WIDTH // HEADS} if family == "qwen3_vl" else {}
        return {
            "text_config": text_settings(tokenizer, rope_parameters=rope, **more),
            "vision_config": {"depth": 2, "num_heads": 2, **_VISION[family]},
            "image_token_id": ids("<|image_pad|>"),
            "video_token_id": ids("<|video_pad|>"),
            "vision_start_token_id": ids("<|vision_start|>"),
            "vision_end_token_id": ids("<|vision_end|>"),
        }
    vision = {"hidden_size": 32, "intermediate_size": 48}
    if family.startswith("glm"):
        rope |= {"partial_rotary_factor": 0.5, "mrope_section": [1, 1, 2]}
        vision |= {"depth": 2, "num_heads": 2, "image_size": 112, "out_hidden_size": WIDTH}
        return {
            "text_config": {"model_type": "glm4v_text", **text_settings(tokenizer, rope_parameters=rope)},
            "vision_config": {"model_type": "glm4v_vision", **vision},
            "image_token_id": ids("<|image|>"),
            "video_token_id": ids("<|video|>"),
            "image_start_token_id": ids("<|begin_of_image|>"),
            "image_end_token_id": ids("<|end_of_image|>"),
            "video_start_token_id": ids("<|begin_of_video|>"),
            "video_end_token_id": ids("<|end_of_video|>"),
        }
    vision |= {"num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 56, "patch_size": 14}
    return {
        "text_config": {"model_type": "llama", **text_settings(tokenizer)},
        "vision_config": vision,
        "image_token_id": ids("<image>"),
        "pad_token_id": tokenizer.pad_token_id,
        "scale_factor": 2,
    }


_TILES: dict[str, Any] = {"size": {"longest_edge": 150}, "max_image_size": {"longest_edge": 56}}
_PROCESSOR_SETTINGS: dict[str, dict[str, Any]] = {
    "qwen3_vl": {"patch_size": 16, "size": {"shortest_edge": 4 * 32 * 32, "longest_edge": 1280 * 32 * 32}},
    "idefics3": _TILES,
    "smolvlm": _TILES,
}
