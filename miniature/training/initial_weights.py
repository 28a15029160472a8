"""First weights that make learning short: heads that look to a place, and heads that look for equal words.

A head looks to a place by its biases alone: with k = (a, 0) and q = (a, 0) turned by -f d in every rotary
pair of frequency f, its score is a sum of a² cos(f (distance - d)), largest where the distance is d. A head
looks for equal words where its query projection picks the same coordinates as its key projection, in the
pairs that turn slowly. All of this is only where learning starts: every one of these weights is trained.
"""

from collections.abc import Sequence
from math import cos, sin, sqrt
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (its usual name)
from torch.nn.init import normal_
from transformers.models.glm4v.modeling_glm4v import Glm4vTextAttention, Glm4vTextModel
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLAttention, Qwen2_5_VLTextModel

TextAttention: TypeAlias = Qwen2_5_VLAttention | Glm4vTextAttention

EMBEDDING_SCALE = 0.06
PAGE_DISTANCE = 26
"""Positions from a page's time to the words of a question: content heads start out turned by it."""
LEFT_ALONG_THE_ROW = ((2, 1, 1.0), (4, 2, 1.0), (1, 1, 0.5), (3, 1, 0.5))
"""Columns left, the slot to note it in and how strongly, for each head of the first layer."""
MATCHES: tuple[tuple[tuple[int, int, int], ...], ...] = (
    ((0, 1, 0), (1, 0, 1)),
    ((0, 0, 3), (1, 1, 2)),
    ((0, 0, 0), (0, 0, 1)),
    ((0, 0, 2), (1, 2, 0)),
)
"""What a head compares: slot of the question, slot of the page, part of the slot.

`solar storage` stands on pages in that order, `margin of Norvale` in the other; an entity or a measure alone
stands anywhere; a year has the entity two words before it."""
ALONE = 2
"""The head of the single words."""
FIRST_LOOK_BACK, LOOK_BACK = 3, 5
"""The layer from which on, and the tokens by which, the cue looks back at the question's last word."""
SLOTS = 4
"""Parts of a decoder state as it starts out: the word itself, the word to its left, the one before, free."""
KIND_PARTS = 4
"""Parts of a slot: entities, measures, fields (and years), subjects."""
MATCH, ESCAPE = 24.0, 60.0
"""Scores of an equal word, and of the token that is looked at where there are not two."""


def start_embeddings(embeddings: Tensor, *, kinds: Sequence[Sequence[int]], blank: int, sink: int) -> None:
    """Give each kind of word its own part of the first slot, far apart from each other; the rest is free.

    All other tokens stand in the last slot; a blank cell and the sink have a coordinate of their own.
    """
    width = embeddings.shape[1]
    slot = width // SLOTS
    part = slot // KIND_PARTS
    size = EMBEDDING_SCALE * sqrt(width)
    embeddings.zero_()
    embeddings[:, -slot:-2] = size * F.normalize(torch.randn(len(embeddings), slot - 2))
    for number, kind in enumerate(kinds):
        start = part * number
        embeddings[kind] = 0
        embeddings[kind, start : start + part] = size * _far_apart(len(kind), part)
    for token, column in ((blank, -2), (sink, -1)):
        embeddings[token] = 0
        embeddings[token, column] = size


def _far_apart(count: int, width: int) -> Tensor:
    """(count, width) unit vectors that push each other away."""
    vectors: Tensor = torch.randn(count, width)
    for _ in range(300):
        vectors = F.normalize(vectors)
        nearness = (8 * vectors @ vectors.t()).exp().fill_diagonal_(0)
        vectors = vectors - 0.1 * nearness @ vectors / nearness.sum(dim=1, keepdim=True)
    return F.normalize(vectors)


def start_decoder(text: Qwen2_5_VLTextModel | Glm4vTextModel) -> None:
    """Let words gather their left neighbours, and let questions start out by looking for equal neighbours.

    The first layer looks one to four cells to the left on the row, and notes what it finds in the slots of
    the state. Layers above compare slots, each head by its own `MATCHES`; where the page has
    nothing equal the sink is looked at, so that how much is looked at it tells the two cases apart. In the
    upper layers one head looks back from the cue to the question.
    """
    config = text.config
    width, heads = config.hidden_size, config.num_attention_heads
    slot = width // SLOTS
    frequencies = text.rotary_emb.inv_freq.tolist()
    slow, rows, _ = config.rope_parameters["mrope_section"]

    def axis_distances(up: int | None, left: int | None) -> list[tuple[float, int | None]]:
        axes = [None] * slow + [up] * rows + [left] * (len(frequencies) - slow - rows)
        return list(zip(frequencies, axes, strict=True))

    for number, layer in enumerate(text.layers):
        attention = layer.self_attn
        normal_(attention.v_proj.weight, std=1 / sqrt(width))
        normal_(attention.o_proj.weight, std=0.005)
        for module in (attention.q_proj, attention.k_proj):
            normal_(module.weight, std=0.005)
        if number == 0:
            for head, (left, target, size) in enumerate(LEFT_ALONG_THE_ROW):
                _look(attention, head, axis_distances(0, left), strength=12.0)
                _copy(attention, head, slice(target * slot, (target + 1) * slot), size=size)
            continue
        for head in range(heads):
            compared = MATCHES[head]
            _match(attention, head, compared, frequencies[1:slow])
            # One word is less than two.
            _escape(attention, head, frequencies[0], score=ESCAPE * (0.3 if head == ALONE else 1.0))
        if number >= FIRST_LOOK_BACK:
            _look(
                attention,
                heads - 1,
                axis_distances(LOOK_BACK, LOOK_BACK),
                strength=2.0 if number % 2 else 0.5,
            )


def start_feed_forward(gate: Tensor, up: Tensor, down: Tensor) -> None:
    """Let a layer's own thoughts start out small."""
    for weights in (gate, up):
        normal_(weights, std=1 / sqrt(weights.shape[1]))
    normal_(down, std=0.005)


def distance_biases(
    distances: Sequence[tuple[float, int | None]], *, strength: float
) -> tuple[Tensor, Tensor]:
    """Biases (dim,) of query and key that look for a distance on each rotary pair; None leaves a pair out.

    `distances` has the frequency f and the distance d of each pair; the score is the sum of
    strength cos(f (distance - d)).
    """
    half = len(distances)
    size = sqrt(strength * sqrt(2 * half))
    query, key = torch.zeros(2 * half), torch.zeros(2 * half)
    for index, (frequency, distance) in enumerate(distances):
        if distance is not None:
            key[index] = size
            query[index], query[index + half] = (
                size * cos(frequency * distance),
                -size * sin(frequency * distance),
            )
    return query, key


def _look(
    attention: TextAttention,
    head: int,
    distances: Sequence[tuple[float, int | None]],
    *,
    strength: float,
) -> None:
    """Make a head look to a place, whatever stands there."""
    part = slice(head * 2 * len(distances), (head + 1) * 2 * len(distances))
    for projection, bias in zip(
        (attention.q_proj, attention.k_proj), distance_biases(distances, strength=strength), strict=True
    ):
        normal_(projection.weight[part], std=0.005)
        projection.bias[part] = bias


def _copy(attention: TextAttention, head: int, target: slice, *, size: float) -> None:
    """Make a head write the first slot of what it looks at into another slot."""
    dim: int = attention.head_dim
    part = slice(head * dim, (head + 1) * dim)
    attention.v_proj.weight[part] = 0
    attention.o_proj.weight[:, part] = 0
    attention.v_proj.weight[part, :dim] = torch.eye(dim)
    attention.o_proj.weight[target, part] = size * EMBEDDING_SCALE * torch.eye(dim)


def _match(
    attention: TextAttention,
    head: int,
    compared: Sequence[tuple[int, int, int]],
    slow: Sequence[float],
) -> None:
    """Make a question's head compare parts of its slots with parts of a page's slots.

    Each equal word scores about `MATCH`, where four words share the state.
    """
    dim: int = attention.head_dim
    width: int = attention.q_proj.in_features
    slot, rows = width // SLOTS, width // SLOTS // KIND_PARTS
    start, pairs = head * dim + 1, len(slow)
    query, key = (torch.zeros(2 * pairs, width) for _ in range(2))
    size = sqrt(MATCH * sqrt(dim) * SLOTS / width)
    for number, (query_slot, page_slot, part) in enumerate(compared):
        for offset in range(rows):
            row = number * rows + offset
            query[row, query_slot * slot + part * rows + offset] = size
            key[row, page_slot * slot + part * rows + offset] = size
    angle = -torch.tensor(slow)[:, None] * PAGE_DISTANCE
    upper, lower = query.chunk(2)
    turned = upper * angle.cos() - lower * angle.sin(), upper * angle.sin() + lower * angle.cos()
    for weights, halves in ((attention.k_proj, key.chunk(2)), (attention.q_proj, turned)):
        weights.weight[start : start + pairs] = halves[0]
        weights.weight[start + dim // 2 : start + dim // 2 + pairs] = halves[1]


def _escape(attention: TextAttention, head: int, frequency: float, *, score: float) -> None:
    """Give the sink the same score for every query, in the first pair."""
    dim: int = attention.head_dim
    start, angle = head * dim, -frequency * PAGE_DISTANCE
    size = sqrt(score * sqrt(dim))
    width = attention.k_proj.in_features
    attention.k_proj.weight[start] = 0
    attention.k_proj.weight[start, -1] = size / sqrt(width)
    attention.q_proj.bias[start] = size * cos(angle)
    attention.q_proj.bias[start + dim // 2] = size * sin(angle)
