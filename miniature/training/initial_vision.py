"""First weights of the vision towers: patches start out by looking at neighbours, like a convolution."""

from collections.abc import Sequence
from math import sqrt
from typing import Any

from torch.nn.init import normal_, zeros_
from transformers.models.glm4v.modeling_glm4v import Glm4vVisionModel
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionTransformerPretrainedModel

from miniature.training.initial_weights import EMBEDDING_SCALE, distance_biases

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
