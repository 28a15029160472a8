import numpy as np
import pytest
from numpy.typing import NDArray

from ridgerank.retrievers.pooling import pool_vectors


def unit(values: NDArray[np.float64]) -> NDArray[np.float32]:
    return np.asarray(values / np.linalg.norm(values, axis=1, keepdims=True), dtype=np.float32)


def test_a_factor_of_one_leaves_vectors_as_they_are() -> None:
    vectors = unit(np.random.default_rng(0).standard_normal((9, 8)))
    assert pool_vectors(vectors, 1) is vectors


@pytest.mark.parametrize(("factor", "left"), [(2, 5), (3, 4), (10, 1), (50, 1)])
def test_a_factor_divides_the_vectors_and_keeps_their_length(factor: int, left: int) -> None:
    pooled = pool_vectors(unit(np.random.default_rng(0).standard_normal((10, 8))), factor)
    assert pooled.shape == (left, 8)
    np.testing.assert_allclose(np.linalg.norm(pooled, axis=1), 1, rtol=1e-6)


def test_vectors_that_say_the_same_become_one() -> None:
    directions = np.eye(3)
    noise = 0.01 * np.random.default_rng(0).standard_normal((12, 3))
    pooled = pool_vectors(unit(np.repeat(directions, 4, axis=0) + noise), 4)
    np.testing.assert_allclose(pooled[pooled.argmax(axis=0)], directions, atol=0.02)


def test_opposite_vectors_cancel_to_nothing_not_to_nan() -> None:
    np.testing.assert_array_equal(pool_vectors(np.array([[1, 0], [-1, 0]], dtype=np.float32), 2), [[0, 0]])


def test_pooled_pages_keep_most_of_their_order() -> None:
    random = np.random.default_rng(1)
    centers = random.standard_normal((40, 16))
    pages = [
        unit(centers[random.integers(0, 40, 24)] + 0.3 * random.standard_normal((24, 16))) for _ in range(60)
    ]
    hits = 0
    for number in range(20):
        query = unit(pages[number][:5].astype(np.float64) + 0.1 * random.standard_normal((5, 16)))
        scores = [float((query @ pool_vectors(page, 3).T).max(axis=1).sum()) for page in pages]
        hits += int(np.argmax(scores)) == number
    assert hits >= 15
