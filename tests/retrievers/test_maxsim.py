import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ridgerank.ragged import Floats
from ridgerank.retrievers import late_interaction as module
from ridgerank.retrievers.late_interaction import maxsim


def brute_force(query: NDArray[np.float32], page: NDArray[np.float16]) -> float:
    return sum(max(float(a @ b) for b in page.astype(np.float64)) for a in query.astype(np.float64))


def case(
    seed: int, pages: list[int], tokens: list[int]
) -> tuple[list[torch.Tensor], NDArray[np.float16], NDArray[np.int64], Floats]:
    random = np.random.default_rng(seed)
    page_vectors = [random.standard_normal((count, 6)).astype(np.float16) for count in pages]
    queries = [random.standard_normal((count, 6)).astype(np.float32) for count in tokens]
    expected = np.array([[brute_force(query, page) for page in page_vectors] for query in queries])
    return (
        [torch.from_numpy(query) for query in queries],
        np.concatenate(page_vectors),
        np.array(pages),
        expected,
    )


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 99),
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.lists(st.integers(1, 7), min_size=1, max_size=4),
)
def test_scores_are_those_of_brute_force(seed: int, pages: list[int], tokens: list[int]) -> None:
    queries, vectors, lengths, expected = case(seed, pages, tokens)
    np.testing.assert_allclose(maxsim(queries, vectors, lengths), expected, rtol=1e-5, atol=1e-5)


def test_queries_in_pieces_score_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    queries, vectors, lengths, expected = case(0, [3, 8, 1, 5], [9, 2, 30])
    largest = []
    real = torch.segment_reduce

    def watched(products: torch.Tensor, *arguments: str, **options: object) -> torch.Tensor:
        largest.append(products.numel())
        return real(products, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "_MAX_PRODUCTS", 70)
    monkeypatch.setattr(torch, "segment_reduce", watched)
    np.testing.assert_allclose(maxsim(queries, vectors, lengths), expected, rtol=1e-5, atol=1e-5)
    assert max(largest) <= 70
    assert len(largest) > 10
