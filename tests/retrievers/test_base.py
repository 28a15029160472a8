import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgerank.errors import RetrieverError
from ridgerank.records import Candidate
from ridgerank.retrievers.base import require_queries, top_candidates


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.integers(1, 40))
def test_the_best_are_the_head_of_the_whole_order(scores: list[int], k: int) -> None:
    ids = [f"{(7 * position) % 31:02}" for position in range(len(scores))]
    whole = sorted(zip(ids, map(float, scores), strict=True), key=lambda pair: (-pair[1], pair[0]))
    assert top_candidates(ids, np.array(scores, dtype=np.float64), k) == [
        Candidate(*pair) for pair in whole[:k]
    ]


def test_fewer_than_one_page_and_empty_queries_are_refused() -> None:
    require_queries(["a", "b"], 1)
    with pytest.raises(RetrieverError, match="best 0 pages"):
        require_queries(["a"], 0)
    with pytest.raises(RetrieverError, match="query 2 of 2 is empty"):
        require_queries(["a", " \n"], 1)
