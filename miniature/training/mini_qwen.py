"""`mini-qwen`, a Qwen2.5-VL before training; the miniature's tokenizer and first weights of vision towers.

Patches start out by looking at neighbours, like a convolution; every word of the miniature is one token.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch.nn.init import normal_, zeros_
from transformers import PreTrainedTokenizerFast, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
from transformers.models.glm4v.modeling_glm4v import Glm4vVisionModel
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionTransformerPretrainedModel
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from miniature.training.initial_weights import (
    EMBEDDING_SCALE,
    distance_biases,
    start_decoder,
    start_embeddings,
    start_feed_forward,
)
from miniature.training.trainable_model import (
    LAYERS,
    WIDTH,
    TrainableModel,
    decoder_settings,
    image_settings,
    word_kinds,
)
from miniature.vocabulary import PAGE_WORDS, QUERY_WORDS
from ridgerank.backbones.vision import Qwen25VL

SENTENCES = (
    "You are a helpful assistant.",
    "Above is a page of a document.",
    "Does it help to answer the query below?",
    "Answer with one word, yes or no.",
    "Query:",
)
"""What the prompt always says: one token each, so that a page is little more than its visual tokens."""
PROMPT_WORDS = ("system", "user", "assistant", "yes", "no", "\n")


def make_tokenizer(control: Sequence[str], *, end: str) -> PreTrainedTokenizerFast:
    """A tokenizer that knows every word of the miniature, and spells what it does not know in bytes.

    `control` are the family's control tokens, `end` the one that ends a turn; padding is `<|endoftext|>`.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    whole = dict.fromkeys((*PAGE_WORDS, *QUERY_WORDS, *PROMPT_WORDS, *SENTENCES))
    spelled = [as_bytes.pre_tokenize_str(text)[0][0] for text in whole]
    vocabulary = {text: number for number, text in enumerate(dict.fromkeys((*alphabet, *spelled)))}
    backend = Tokenizer(models.BPE(vocabulary, [], ignore_merges=True))
    sentences = "|".join(text.replace("?", r"\?").replace(".", r"\.") for text in SENTENCES)
    pieces = Regex(sentences + r"|\n|\p{L}+|\p{N}+|[^\s\p{L}\p{N}]")
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(pieces, behavior="removed", invert=True), as_bytes]
    )
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(control))
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=end, pad_token="<|endoftext|>")


NEIGHBOURS = (
    ((0, -1), (0, 1), (-1, 0), (1, 0)),
    ((0, -2), (0, 2), (0, 0), (0, 3)),
    ((0, -1), (0, 1), (-1, 0), (1, 0)),
    ((0, -2), (0, 2), (0, 4), (0, -3)),
)
"""Rows and columns from a patch to what it looks at, for each layer and head."""


def start_qwen_vision(vision: Qwen2_5_VisionTransformerPretrainedModel) -> None:
    """Blocks that look at neighbours, and a merger whose output has the size of embeddings."""
    _start_blocks(vision.blocks, vision.config.hidden_size, vision.config.num_heads)
    first, _, last = vision.merger.mlp
    normal_(first.weight, std=1 / sqrt(first.in_features))
    normal_(last.weight, std=EMBEDDING_SCALE / sqrt(last.in_features))


def start_glm_vision(vision: Glm4vVisionModel) -> None:
    """The same; learned positions start at nothing, for words mean the same everywhere."""
    _start_blocks(vision.blocks, vision.config.hidden_size, vision.config.num_heads)
    zeros_(vision.embeddings.position_embedding.weight)
    merger = vision.merger
    normal_(vision.downsample.weight, std=1 / sqrt(4 * vision.config.hidden_size))
    for linear in (merger.proj, merger.gate_proj, merger.up_proj):
        normal_(linear.weight, std=1 / sqrt(linear.in_features))
    normal_(merger.down_proj.weight, std=EMBEDDING_SCALE / sqrt(merger.down_proj.in_features))


def _start_blocks(blocks: Sequence[Any], width: int, heads: int) -> None:
    dim = width // heads
    # Frequencies of the rows, then of the columns; the slower ones cannot tell neighbours apart.
    frequencies = [10000.0 ** (-number / (dim // 4)) for number in range(dim // 4)]
    for block, neighbours in zip(blocks, NEIGHBOURS, strict=False):
        normal_(block.attn.qkv.weight[: 2 * width], std=0.02)
        normal_(block.attn.qkv.weight[2 * width :], std=0.06)
        normal_(block.attn.proj.weight, std=0.04)
        for head, (rows, columns) in enumerate(neighbours):
            distances = [(f, rows) for f in frequencies] + [(f, columns) for f in frequencies]
            query, key = distance_biases(distances, strength=8.0)
            block.attn.qkv.bias[head * dim : (head + 1) * dim] = query
            block.attn.qkv.bias[width + head * dim : width + (head + 1) * dim] = key


CONTROL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)


def make_mini_qwen(seed: int, *, layers: int = LAYERS) -> TrainableModel:
    """A Qwen2.5-VL with its first weights."""
    torch.manual_seed(seed)
    tokenizer = make_tokenizer(CONTROL, end="<|im_end|>")
    ids = tokenizer.convert_tokens_to_ids
    config = Qwen2_5_VLConfig(
        text_config=decoder_settings(tokenizer, layers),
        vision_config={
            "depth": 4,
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_heads": 4,
            "out_hidden_size": WIDTH,
            "temporal_patch_size": 1,
            "fullatt_block_indexes": [1, 3],
        },
        image_token_id=ids("<|image_pad|>"),
        video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"),
        vision_end_token_id=ids("<|vision_end|>"),
        tie_word_embeddings=False,
    )
    model = Qwen2_5_VLForConditionalGeneration(config)
    with torch.no_grad():
        start_qwen_vision(model.model.visual)
        text = model.model.language_model
        start_embeddings(
            text.embed_tokens.weight,
            kinds=word_kinds(tokenizer),
            blank=ids("<|image_pad|>"),
            sink=ids("<|vision_start|>"),
        )
        start_decoder(text)
        for layer in text.layers:
            mlp = layer.mlp
            start_feed_forward(mlp.gate_proj.weight, mlp.up_proj.weight, mlp.down_proj.weight)
    return TrainableModel(model, tokenizer, Qwen2VLImageProcessorPil(**image_settings()), Qwen25VL)
