"""Vectors by a formula, for a comparison of GQR with its published code: the same on every machine."""

import numpy as np
from numpy.typing import NDArray

PAGES, PAGE_VECTORS, QUERIES, QUERY_VECTORS, DIM, TEXT_DIM = 12, 9, 3, 6, 16, 8


def page_vectors() -> NDArray[np.float16]:
    """(pages, vectors, dim), in the precision of a store."""
    return unit_vectors((PAGES, PAGE_VECTORS, DIM), seed=1.0).astype(np.float16)


def query_vectors() -> NDArray[np.float32]:
    """(queries, vectors, dim)."""
    return unit_vectors((QUERIES, QUERY_VECTORS, DIM), seed=2.0)


def text_vectors() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Single vectors of the text retriever: pages (pages, dim) and queries (queries, dim)."""
    return unit_vectors((PAGES, TEXT_DIM), seed=3.0), unit_vectors((QUERIES, TEXT_DIM), seed=4.0)


def unit_vectors(shape: tuple[int, ...], *, seed: float) -> NDArray[np.float32]:
    """Fractions of large sines, from −1 to 1, scaled to length 1 along the last axis."""
    numbers = np.arange(1, np.prod(shape) + 1, dtype=np.float64)
    waves = np.sin(numbers * 12.9898 + seed * 78.233) * 43758.5453
    values = (2.0 * (waves - np.floor(waves)) - 1.0).reshape(shape)
    scaled: NDArray[np.float32] = (values / np.linalg.norm(values, axis=-1, keepdims=True)).astype(np.float32)
    return scaled
