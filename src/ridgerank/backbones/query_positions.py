"""What is read at the query's own positions: their mean state, and the probability of the query's tokens.

`query_tokens` start one token before the query: that position predicts the query's first token.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def mean_state(states: Tensor, query_tokens: Sequence[Sequence[int]]) -> Tensor:
    """Average (pairs, positions, width) over the positions of each query's tokens, float32 (pairs, width).

    A query without tokens is read at the position before it.
    """
    lengths = torch.tensor([len(ids) for ids in query_tokens], device=states.device)
    position = torch.arange(states.shape[1], device=states.device)
    counted = (position < lengths[:, None]) & ((position > 0) | (lengths[:, None] == 1))
    weights = (counted / counted.sum(dim=1, keepdim=True)).expand(len(states), -1)
    return torch.einsum("pnw,pn->pw", states.float(), weights)


def mean_log_probability(
    states: Tensor,
    query_tokens: Sequence[Sequence[int]],
    *,
    norm: Callable[[Tensor], Tensor],
    unembedding: Tensor,
) -> Tensor:
    """log p(query | page) per token, float32 (pairs,), from last-layer states (pairs, positions, width).

    The mean, not the sum: within a query both rank alike, and across queries a fit should not count a long
    one for more. The state at a position predicts the token behind it; positions behind the query's last
    token do not count.
    """
    projection = unembedding.float().t()
    means = []
    for pair, hidden in enumerate(states):  # one at a time: a vocabulary is wide
        tokens = query_tokens[pair if len(query_tokens) > 1 else 0][1:]
        next_tokens = torch.tensor(tokens, device=states.device)
        logits = norm(hidden[: len(next_tokens)]).float() @ projection
        means.append((logits.gather(1, next_tokens[:, None])[:, 0] - logits.logsumexp(dim=1)).mean())
    return torch.stack(means)
