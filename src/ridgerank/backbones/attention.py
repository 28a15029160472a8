"""Where a query's last position looks, or its positions on average: the weights of attention.

The fused kernels keep them to themselves.

They are worked out beside the pass, on request, from the same rotated queries and keys; the states do not
depend on it. This module knows no page and no query, only positions.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Attention:
    """One query over K pages: what its last position attended to, layer by layer, averaged over heads.

    Or what the query's own positions attended to, averaged over these, too.

    For each layer and page the weights over both parts add up to 1; padding has none.
    """

    states: Tensor
    """(K, width), float32: just what `Backbone.states` gives."""
    over_prefix: Tensor
    """(layers, K, longest prefix), float32, for layers [join_layer, exit_layer)."""
    over_suffix: Tensor
    """(layers, K, suffix), float32: the instruction's last token, the query's, the cue for the answer."""


def watch(queries: Tensor, keys: Tensor, mask: Tensor, last: Tensor | None) -> Tensor:
    """What each suffix's position `last` (pairs,) attended to, (pairs, positions); without it, what each did.

    `queries` is (pairs, heads, suffix or one, dim), `mask` (pairs, at least as many, positions). The weights
    of every position are (pairs, suffix, positions).
    """
    if last is None:
        rows = range(queries.shape[2])
        return torch.stack([attention_weights(queries[:, :, row], keys, mask[:, row]) for row in rows], dim=1)
    pair = torch.arange(len(last), device=last.device)
    place = last.clamp(max=queries.shape[2] - 1)  # of one position, it is that one
    return attention_weights(queries[pair, :, place], keys, mask[pair, place])


def attention_weights(queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
    """softmax(q kᵀ / √dim + mask), averaged over heads: (pairs, positions), float32.

    `queries` is (pairs, heads, dim), one position each, `keys` (pairs, kv_heads, positions, dim), both
    rotated, `mask` (pairs, positions): 0 where the position may look, −∞ elsewhere.
    """
    pairs, heads, dim = queries.shape
    folded = queries.float().view(pairs, keys.shape[1], heads // keys.shape[1], dim)
    logits: Tensor = folded @ keys.float().transpose(2, 3) / dim**0.5 + mask.float()[:, None, None]
    return logits.softmax(dim=-1).mean(dim=(1, 2))
