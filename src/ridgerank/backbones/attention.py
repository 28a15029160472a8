"""Where a query's last position looks, or its positions on average: the weights of attention.

The fused kernels keep them to themselves.

They are worked out beside the pass, on request, from the same rotated queries and keys; the states do not
depend on it. This module knows no page and no query, only positions.
"""

from dataclasses import dataclass

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


def attention_weights(queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
    """softmax(q kᵀ / √dim + mask), averaged over heads: (pairs, positions), float32.

    `queries` is (pairs, heads, dim), one position each, `keys` (pairs, kv_heads, positions, dim), both
    rotated, `mask` (pairs, positions): 0 where the position may look, −∞ elsewhere.
    """
    pairs, heads, dim = queries.shape
    folded = queries.float().view(pairs, keys.shape[1], heads // keys.shape[1], dim)
    logits: Tensor = folded @ keys.float().transpose(2, 3) / dim**0.5 + mask.float()[:, None, None]
    return logits.softmax(dim=-1).mean(dim=(1, 2))
