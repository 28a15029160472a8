"""MaxSim: every vector of the query looks for its best match on the page, and the matches add up.

    s(q, p) = Σ_i max_j ⟨q_i, p_j⟩

Pages come in blocks and queries in pieces, so that products of all vectors with all others are never in
memory together. This module knows neither models nor stores.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ridgerank.lists import Floats

_PRODUCTS_AT_ONCE = 1 << 23
"""Inner products held at a time, 32 MiB in float32."""


def maxsim(queries: Sequence[Tensor], vectors: NDArray[np.float16], lengths: NDArray[np.int64]) -> Floats:
    """Scores (queries, pages) of queries, each (tokens, dim), over pages' vectors laid end to end.

    `vectors` is (vectors, dim) and page p has `lengths[p]` of them, at least one. Computed in float32 where
    the queries are.
    """
    device = queries[0].device
    tokens = torch.cat(list(queries)).float()
    owners = torch.repeat_interleave(
        torch.arange(len(queries), device=device),
        torch.tensor([len(query) for query in queries], device=device),
    )
    pages = torch.tensor(vectors, device=device).float()
    sizes = torch.tensor(lengths, device=device)
    scores = torch.zeros(len(queries), len(lengths), device=device)
    step = max(1, _PRODUCTS_AT_ONCE // max(1, len(pages)))
    for start in range(0, len(tokens), step):
        products = pages @ tokens[start : start + step].T
        best = torch.segment_reduce(products, "max", lengths=sizes, axis=0)
        scores.index_add_(0, owners[start : start + step], best.T)
    return scores.cpu().numpy().astype(np.float64)
