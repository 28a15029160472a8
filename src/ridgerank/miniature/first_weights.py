"""First weights that make learning short: heads that look to a place, and heads that look for equal words.

A head looks to a place by its biases alone: with k = (a, 0) and q = (a, 0) turned by -f d in every rotary
pair of frequency f, its score is a sum of a² cos(f (distance - d)), largest where the distance is d. A head
looks for equal content where its query projection equals its key projection, in the pairs that turn slowly.
All of it is only where learning starts: every one of these weights is trained.
"""

from collections.abc import Sequence
from math import cos, sin, sqrt

import torch
from torch import Tensor
from torch.nn.init import normal_
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import (
    Qwen2_5_VisionTransformerPretrainedModel,
    Qwen2_5_VLAttention,
    Qwen2_5_VLTextModel,
)

EMBEDDING_SCALE = 0.06
PAGE_DISTANCE = 26
"""Positions from a page's time to the words of a question: content heads start out turned by it."""
LEFT_ALONG_THE_ROW = ((0, 2), (0, 4), (0, 1), (0, None))
"""Rows up and columns left, for each head of the decoder's first layer; None is anywhere."""
NEIGHBOURS = (
    ((0, -1), (0, 1), (-1, 0), (1, 0)),
    ((0, -2), (0, 2), (0, 0), (0, 3)),
    ((0, -1), (0, 1), (-1, 0), (1, 0)),
    ((0, -2), (0, 2), (0, 4), (0, -3)),
)
"""The same in patches, for each layer and head of the vision tower."""
LOOK_BACK = 6
"""Tokens from the cue for the answer back to the question."""


def start_vision(vision: Qwen2_5_VisionTransformerPretrainedModel) -> None:
    """Let every patch start out by looking at its neighbours, as a convolution does."""
    width = vision.config.hidden_size
    dim = width // vision.config.num_heads
    # Frequencies of the rows, then of the columns; the slower ones cannot tell neighbours apart.
    frequencies = [10000.0 ** (-number / (dim // 4)) for number in range(dim // 4)]
    for block, places in zip(vision.blocks, NEIGHBOURS, strict=False):
        normal_(block.attn.qkv.weight, std=1 / sqrt(width))
        block.attn.qkv.weight[: 2 * width].mul_(0.2)
        normal_(block.attn.proj.weight, std=0.5 / sqrt(width))
        normal_(block.mlp.gate_proj.weight, std=1 / sqrt(width))
        normal_(block.mlp.up_proj.weight, std=1 / sqrt(width))
        normal_(block.mlp.down_proj.weight, std=0.5 / sqrt(block.mlp.down_proj.in_features))
        for head, (rows, columns) in enumerate(places):
            wanted = [(f, rows) for f in frequencies] + [(f, columns) for f in frequencies]
            query, key = place_biases(wanted, strength=8.0)
            block.attn.qkv.bias[head * dim : (head + 1) * dim] = query
            block.attn.qkv.bias[width + head * dim : width + (head + 1) * dim] = key
    first, _, last = vision.merger.mlp
    normal_(first.weight, std=1 / sqrt(first.in_features))
    normal_(last.weight, std=0.3 * EMBEDDING_SCALE / sqrt(last.in_features))


def start_decoder(text: Qwen2_5_VLTextModel) -> None:
    """Let neighbouring words make a bag, and let questions start out by looking for equal bags.

    The first layer looks one, two and four cells to the left and along the row, and adds what it finds to
    what stands there. In the upper layers one head looks back from the cue to the question.
    """
    config = text.config
    width, heads = config.hidden_size, config.num_attention_heads
    dim = width // heads
    frequencies = text.rotary_emb.inv_freq.tolist()
    slow, rows, _ = config.rope_parameters["mrope_section"]

    def wanted(up: int | None, left: int | None) -> list[tuple[float, int | None]]:
        axes = [None] * slow + [up] * rows + [left] * (len(frequencies) - slow - rows)
        return list(zip(frequencies, axes, strict=True))

    normal_(text.embed_tokens.weight, std=EMBEDDING_SCALE)
    shared = _orthonormal(dim, width)
    for number, layer in enumerate(text.layers):
        attention = layer.self_attn
        for module in (layer.mlp.gate_proj, layer.mlp.up_proj, attention.v_proj):
            normal_(module.weight, std=1 / sqrt(width))
        for module in (layer.mlp.down_proj, attention.o_proj):
            normal_(module.weight, std=0.01)
        for module in (attention.q_proj, attention.k_proj):
            normal_(module.weight, std=0.005)
        if number == 0:
            for head, place in enumerate(LEFT_ALONG_THE_ROW):
                _look(attention, head, wanted(*place), strength=12.0)
                part = slice(head * dim, (head + 1) * dim)
                attention.v_proj.weight[part] = shared
                attention.o_proj.weight[:, part] = EMBEDDING_SCALE * shared.t()
            continue
        for head in range(heads):
            content = shared if head < 2 else _orthonormal(dim, width)
            content = content[: 2 * slow] if head % 2 else content[-2 * slow :]
            _match(attention, head, content, frequencies[:slow], strength=10.0)
        if number == 1:
            _look(attention, heads - 1, wanted(None, 0), strength=4.0)
        elif number >= 3:
            _look(attention, heads - 1, wanted(LOOK_BACK, LOOK_BACK), strength=2.0)


def place_biases(wanted: Sequence[tuple[float, int | None]], *, strength: float) -> tuple[Tensor, Tensor]:
    """Biases (dim,) of query and key that look for a distance on each rotary pair; None leaves a pair out.

    `wanted` has the frequency f and the distance d of each pair; the score is the sum of
    strength cos(f (distance - d)).
    """
    half = len(wanted)
    size = sqrt(strength * sqrt(2 * half))
    query, key = torch.zeros(2 * half), torch.zeros(2 * half)
    for index, (frequency, distance) in enumerate(wanted):
        if distance is not None:
            key[index] = size
            query[index], query[index + half] = (
                size * cos(frequency * distance),
                -size * sin(frequency * distance),
            )
    return query, key


def _look(
    attention: Qwen2_5_VLAttention,
    head: int,
    wanted: Sequence[tuple[float, int | None]],
    *,
    strength: float,
) -> None:
    """Make a head look to a place, whatever stands there."""
    part = slice(head * 2 * len(wanted), (head + 1) * 2 * len(wanted))
    for projection, bias in zip(
        (attention.q_proj, attention.k_proj), place_biases(wanted, strength=strength), strict=True
    ):
        normal_(projection.weight[part], std=0.005)
        projection.bias[part] = bias


def _match(
    attention: Qwen2_5_VLAttention, head: int, content: Tensor, slow: Sequence[float], *, strength: float
) -> None:
    """Make a question's head look for equal content, (2 x slow pairs, width), on the page."""
    dim: int = attention.head_dim
    start, pairs = head * dim, len(slow)
    keys = content * sqrt(strength * sqrt(dim) / (2 * pairs))
    angle = -torch.tensor(slow)[:, None] * PAGE_DISTANCE
    upper, lower = keys.chunk(2)
    turned = upper * angle.cos() - lower * angle.sin(), upper * angle.sin() + lower * angle.cos()
    for projection, halves in ((attention.k_proj, (upper, lower)), (attention.q_proj, turned)):
        projection.weight[start : start + pairs] = halves[0]
        projection.weight[start + dim // 2 : start + dim // 2 + pairs] = halves[1]


def _orthonormal(rows: int, width: int) -> Tensor:
    """(rows, width)."""
    basis: Tensor = torch.linalg.qr(torch.randn(width, rows)).Q
    return basis.t().contiguous()
