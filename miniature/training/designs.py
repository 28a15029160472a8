"""The models before training: `mini-qwen`, a Qwen2.5-VL, and `mini-glm`, a GLM-4.1V.

What makes learning short on two cores: a vocabulary of whole words, one token each, rotary frequencies that
suit a grid of 12 x 16 cells, and first weights (`initial_weights.py`) that already look to the left and
match equal words. Patches start out by looking at neighbours, like a convolution. In `mini-glm` neighbouring
channels turn together, what a layer adds is normalised first, the vision tower sees the whole page in every
layer and merges patches by a convolution.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any, TypeAlias

import torch
from PIL.Image import Image
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from torch.nn.init import normal_, zeros_
from transformers import (
    BaseImageProcessor,
    Glm4vConfig,
    Glm4vForConditionalGeneration,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
)
from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil
from transformers.models.glm4v.modeling_glm4v import Glm4vTextModel, Glm4vVisionModel
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionTransformerPretrainedModel
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from miniature.draw import draw_document
from miniature.training.initial_weights import (
    EMBEDDING_SCALE,
    distance_biases,
    start_decoder,
    start_embeddings,
    start_feed_forward,
)
from miniature.vocabulary import ENTITIES, FIELDS, MEASURES, PAGE_WORDS, QUERY_WORDS, SUBJECTS, YEARS
from miniature.world import HEIGHT_PIXELS, WIDTH_PIXELS, PlannedPage
from ridgerank.backbones.vision import Glm41V, GridBackbone, Qwen25VL
from ridgerank.documents.pdf import PdfReader

VisionLanguageModel: TypeAlias = Qwen2_5_VLForConditionalGeneration | Glm4vForConditionalGeneration

LAYERS, WIDTH, HEADS = 8, 192, 4
SECTIONS = (14, 5, 5)
"""Rotary frequencies of a head that turn with time, row and column."""
SLOWEST, FASTEST = 0.02, 1.2
"""Radians a position: time turns slowly and so carries content, columns turn fast."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainableModel:
    """A model in the making."""

    model: VisionLanguageModel
    tokenizer: PreTrainedTokenizerFast
    image_processor: BaseImageProcessor
    backbone: type[GridBackbone]
    """The family whose prompt it is taught with."""


def decoder_settings(tokenizer: PreTrainedTokenizerFast, layers: int) -> dict[str, Any]:
    """The text configuration of either family."""
    frequencies = sum(SECTIONS)
    spread = (SLOWEST / FASTEST) ** (frequencies / (frequencies - 1))
    return {
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "vocab_size": len(tokenizer),
        "max_position_embeddings": 4096,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        # Rising frequencies: theta below 1, slowed down as a whole.
        "rope_parameters": {
            "rope_type": "linear",
            "rope_theta": spread,
            "factor": 1 / SLOWEST,
            "mrope_section": list(SECTIONS),
        },
    }


def image_settings() -> dict[str, Any]:
    """An image processor at the size of a drawn page; white paper is zero, so that ink is all there is."""
    return {
        "size": {"shortest_edge": 28 * 28, "longest_edge": WIDTH_PIXELS * HEIGHT_PIXELS},
        "temporal_patch_size": 1,
        "image_mean": [1.0, 1.0, 1.0],
        "image_std": [0.5, 0.5, 0.5],
    }


def word_kinds(tokenizer: PreTrainedTokenizerFast) -> Sequence[Sequence[int]]:
    """Tokens of the words that questions join, kind by kind."""
    ids = tokenizer.convert_tokens_to_ids
    return [ids(list(kind)) for kind in (ENTITIES, MEASURES, (*FIELDS, *YEARS), SUBJECTS)]


def render(pages: Sequence[PlannedPage]) -> list[Image]:
    """An RGB image of each page, 336 x 448 pixels; many at once cost less than one at a time."""
    with tempfile.TemporaryDirectory() as folder, PdfReader() as reader:
        path = Path(folder) / "pages.pdf"
        path.write_bytes(draw_document(pages))
        return [
            reader.read(path, number, max_pixels=WIDTH_PIXELS * HEIGHT_PIXELS)[0]
            for number in range(1, len(pages) + 1)
        ]


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


GLM_CONTROL = (
    "<|endoftext|>",
    "[gMASK]",
    "<sop>",
    "<|user|>",
    "<|assistant|>",
    "<|begin_of_image|>",
    "<|image|>",
    "<|end_of_image|>",
    "<|begin_of_video|>",
    "<|video|>",
    "<|end_of_video|>",
    "<think>",
    "</think>",
    "<answer>",
    "</answer>",
)


def make_mini_glm(seed: int, *, layers: int = LAYERS) -> TrainableModel:
    """A GLM-4.1V with its first weights."""
    torch.manual_seed(seed)
    tokenizer = make_tokenizer(GLM_CONTROL, end="<|user|>")
    ids = tokenizer.convert_tokens_to_ids
    config = Glm4vConfig(
        text_config=decoder_settings(tokenizer, layers),
        vision_config={
            "depth": 4,
            "hidden_size": 128,
            "num_heads": 4,
            "attention_bias": True,
            "image_size": 336,
            "temporal_patch_size": 1,
            "out_hidden_size": WIDTH,
            "intermediate_size": 512,
        },
        image_token_id=ids("<|image|>"),
        video_token_id=ids("<|video|>"),
        image_start_token_id=ids("<|begin_of_image|>"),
        image_end_token_id=ids("<|end_of_image|>"),
        video_start_token_id=ids("<|begin_of_video|>"),
        video_end_token_id=ids("<|end_of_video|>"),
        tie_word_embeddings=False,
    )
    model = Glm4vForConditionalGeneration(config)
    with torch.no_grad():
        start_glm_vision(model.model.visual)
        text = model.model.language_model
        start_embeddings(
            text.embed_tokens.weight,
            kinds=word_kinds(tokenizer),
            blank=ids("<|image|>"),
            sink=ids("<|begin_of_image|>"),
        )
        start_decoder(text)
        _settle(text)
    return TrainableModel(model, tokenizer, Glm4vImageProcessorPil(**image_settings()), Glm41V)


def _settle(text: Glm4vTextModel) -> None:
    """Bring first weights made for halves that turn together into GLM's order, and scale what is added."""
    for layer in text.layers:
        gate, up = layer.mlp.gate_up_proj.weight.chunk(2)
        start_feed_forward(gate, up, layer.mlp.down_proj.weight)
        for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj):
            for weights in (projection.weight, projection.bias):
                weights.copy_(_neighbouring(weights, layer.self_attn.head_dim))
        layer.post_self_attn_layernorm.weight.fill_(EMBEDDING_SCALE)
        layer.post_mlp_layernorm.weight.fill_(EMBEDDING_SCALE / 2)


def _neighbouring(rows: Tensor, dim: int) -> Tensor:
    """Within every head of `dim` rows, put row i + dim/2 behind row i."""
    order = torch.arange(dim).view(2, dim // 2).t().flatten()
    heads = torch.arange(len(rows)).view(-1, dim)
    return rows[heads[:, order].flatten()]
