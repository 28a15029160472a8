"""Random draws of queries, the same ones every time."""

import numpy as np


def draw_queries(population: int, size: int, *, count: int, seed: int) -> list[list[int]]:
    """`count` samples of `size` numbers below `population` without replacement, each ascending."""
    generator = np.random.default_rng([seed, population, size])
    return [
        sorted(generator.choice(population, size=min(size, population), replace=False).tolist())
        for _ in range(count)
    ]
