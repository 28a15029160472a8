"""Cache hit rates of the read path under Zipf traffic: Che's approximation, and a simulation beside it.

The page of rank i is a candidate with probability ∝ i^−s, independently at every request; a cache of C pages
drops the least recently used. Che: a page is in the cache if it was asked for within the last T requests,
where T solves Σ_i (1 − e^(−p_i T)) = C; a request is a hit with probability Σ_i p_i (1 − e^(−p_i T)).
"""

from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

_BINS = 4000
"""Ranks are put together in bins that grow with the rank: a billion pages are as quick as a thousand."""


def hit_rate(pages: int, cached: float, exponent: float) -> float:
    """Share of page reads that a least-recently-used cache of `cached` pages answers, by Che."""
    if cached >= pages:
        return 1.0
    if cached <= 0:
        return 0.0
    counts, chances = _traffic(pages, exponent)
    low, high = 0.0, 1.0
    while _held(counts, chances, high) < cached:
        high *= 2.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _held(counts, chances, middle) < cached else (low, middle)
    return float((counts * chances * -np.expm1(-chances * high)).sum())


def simulated_hit_rate(pages: int, cached: int, exponent: float, *, requests: int, seed: int = 0) -> float:
    """The same from a cache that is asked, once it is warm: the second half of `requests` counts."""
    weights = np.arange(1, pages + 1, dtype=np.float64) ** -exponent
    chosen = np.random.default_rng(seed).choice(pages, size=requests, p=weights / weights.sum())
    held: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for request, page in enumerate(chosen.tolist()):
        if page in held:
            held.move_to_end(page)
            hits += request >= requests // 2
            continue
        held[page] = None
        if len(held) > cached:
            held.popitem(last=False)
    return hits / (requests - requests // 2)


def _held(counts: NDArray[np.float64], chances: NDArray[np.float64], requests: float) -> float:
    return float((counts * -np.expm1(-chances * requests)).sum())


def _traffic(pages: int, exponent: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Pages of each bin, and the chance of each of them."""
    edges = np.unique(np.round(np.geomspace(1, pages + 1, _BINS)).astype(np.int64))
    counts = np.diff(edges).astype(np.float64)
    middles = np.sqrt(edges[:-1].astype(np.float64) * np.maximum(edges[1:] - 1, edges[:-1]))
    weights = middles**-exponent
    return counts, weights / (counts * weights).sum()
