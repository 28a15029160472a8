"""What is read at the query's own positions: their mean state, and the probability of the query's tokens.

`query_tokens` start one token before the query: that position predicts the query's first token.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

_WORDS_AT_ONCE = 8192


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
    tokens = [query_tokens[pair if len(query_tokens) > 1 else 0][1:] for pair in range(len(states))]
    lengths = [len(pair_tokens) for pair_tokens in tokens]
    normed = torch.cat(
        [norm(hidden[:length]).float() for hidden, length in zip(states, lengths, strict=True)]
    )
    next_tokens = torch.tensor([token for pair in tokens for token in pair], device=states.device)
    logits = (normed * unembedding[next_tokens].float()).sum(dim=1)
    log_probabilities = logits - _log_partition(normed, unembedding)
    return torch.stack([part.mean() for part in torch.split(log_probabilities, lengths)])


def _log_partition(normed: Tensor, unembedding: Tensor) -> Tensor:
    """log Σ exp over the vocabulary, float32 (rows,), some words at a time.

    A whole vocabulary in float32 is gigabytes for a large model; a part of it at a time is not.
    """
    total = torch.full((len(normed),), -torch.inf, device=normed.device)
    for words in torch.split(unembedding, _WORDS_AT_ONCE):
        total = torch.logaddexp(total, (normed @ words.float().t()).logsumexp(dim=1))
    return total
