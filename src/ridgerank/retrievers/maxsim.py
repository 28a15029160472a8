"""MaxSim: the best match on the page of every query vector, summed over the query.

    s(q, p) = Σ_i max_j ⟨q_i, p_j⟩

Pages come in blocks and queries in chunks, so that the products of all vectors are never in memory together.
This module knows neither models nor stores.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ridgerank.ragged import Floats

_MAX_PRODUCTS = 1 << 23
"""Inner products held at a time, 32 MiB in float32."""


def maxsim(queries: Sequence[Tensor], vectors: NDArray[np.float16], lengths: NDArray[np.int64]) -> Floats:
    """Scores (queries, pages) of queries, each (tokens, dim), over pages' vectors laid end to end.

    `vectors` is (vectors, dim) and page p has `lengths[p]` of them, at least one. Computed in float32 where
    the queries are.
    """
    device = queries[0].device
    tokens = torch.cat(list(queries)).float()
    pages = torch.from_numpy(vectors).to(device).float()
    step = max(1, _MAX_PRODUCTS // max(1, len(pages)))
    matches = [_max_per_page(pages @ chunk.T, lengths) for chunk in torch.split(tokens, step)]
    per_query = torch.split(torch.cat(matches, dim=1), [len(query) for query in queries], dim=1)
    return torch.stack([maxima.sum(1) for maxima in per_query]).cpu().numpy().astype(np.float64)


def _max_per_page(products: Tensor, lengths: NDArray[np.int64]) -> Tensor:
    """(pages, tokens): the highest product on each page, of (vectors, tokens)."""
    if (lengths == lengths[0]).all():  # as most models make them; many times faster
        return products.view(len(lengths), lengths[0], -1).amax(1)
    return torch.segment_reduce(
        products, "max", lengths=torch.from_numpy(lengths).to(products.device), axis=0
    )
