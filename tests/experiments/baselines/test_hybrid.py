import math
from collections.abc import Mapping

import numpy as np
import pytest

from experiments.baselines.fusion import fuse_by_min_max, fuse_by_rank
from experiments.baselines.sequential_dependence import SequentialDependence, ordered_count, window_count
from experiments.protocols import best_weight
from ridgerank.errors import RetrieverError
from ridgerank.ragged import Ragged
from ridgerank.records import Candidate
from ridgerank.store.page_store import PageStore
from tests.experiments.reproduce.test_protocol import corpus

LISTS = Ragged.of_lengths([3, 2])
RETRIEVER = np.array([9.0, 5.0, 1.0, 0.2, 0.1])
BASELINE = np.array([10.0, 30.0, 20.0, 1.0, 3.0])


def test_fusion_by_rank_is_as_computed_by_hand() -> None:
    expected = [
        0.75 / 61 + 0.25 / 63,
        0.75 / 62 + 0.25 / 61,
        0.75 / 63 + 0.25 / 62,
        0.75 / 61 + 0.25 / 62,
        0.75 / 62 + 0.25 / 61,
    ]
    assert fuse_by_rank(RETRIEVER, BASELINE, 0.25, LISTS) == pytest.approx(expected)


def test_pages_of_equal_score_share_their_mean_rank() -> None:
    """The text retriever finds the third page only: the two it does not know are both at rank 2.5."""
    lists, retriever = Ragged.of_lengths([3]), np.array([9.0, 5.0, 1.0])
    fused = fuse_by_rank(retriever, np.array([0.0, 0.0, 4.0]), 0.5, lists)
    expected = [0.5 / 61 + 0.5 / 62.5, 0.5 / 62 + 0.5 / 62.5, 0.5 / 63 + 0.5 / 61]
    assert fused == pytest.approx(expected, abs=1e-12)
    assert lists.ranks(fused).tolist() == [1, 3, 2]


def test_aggregation_is_as_computed_by_hand() -> None:
    expected = [0.75 * 1 + 0, 0.75 * 0.5 + 0.25, 0.25 * 0.5, 0.75, 0.25]
    assert fuse_by_min_max(RETRIEVER, BASELINE, 0.25, LISTS) == pytest.approx(expected)


def test_the_weight_is_the_smallest_of_the_best_on_the_inner_corpus() -> None:
    """Aggregated scores are 1 − 0.9 w, 0.9 (1 − w), w: the relevant third page leads from w = 0.55 on."""
    nothing = (0.0, 0.0, 0.0)
    inner = corpus("inner", retriever=(1.0, 0.9, 0.0), margins=nothing, states=nothing, grades=(0, 0, 1))
    scores = np.array([0.1, 0.0, 1.0])
    assert best_weight(fuse_by_min_max)(inner, scores) == pytest.approx(0.55)


class Texts(PageStore):
    """Pages that are text alone."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.uri, self._texts = "memory", dict(texts)

    def texts(self) -> dict[str, str]:
        return self._texts


def test_pairs_are_counted_in_order_and_within_a_window() -> None:
    page = ["a", "b", "a", "c", "c", "c", "c", "c", "c", "c", "b"]
    assert ordered_count(page, "a", "b") == 1
    assert ordered_count(page, "b", "a") == 1
    assert window_count(page, "a", "b") == 2  # both stand next to the first b
    assert window_count(page, "b", "c") == 2  # each b has a c within eight words
    assert window_count(["a", "1", "2", "3", "4", "5", "6", "b"], "a", "b") == 1  # eight words in all
    assert window_count(["a", "1", "2", "3", "4", "5", "6", "7", "b"], "a", "b") == 0


def test_a_score_is_as_computed_by_hand() -> None:
    """Pages "a b" and "b x a y": six words, three a page on average, which is μ."""
    arm = SequentialDependence(Texts({"1": "a b", "2": "b x a y"}), name="sequential")
    first, second = arm.score("A b", [Candidate("1", 0.0), Candidate("2", 0.0)])

    def log(count: int, everywhere: int, length: int) -> float:
        return math.log((count + 3 * everywhere / 6) / (length + 3))

    words = [2 * log(1, 2, length) for length in (2, 4)]
    ordered = [log(1, 1, 2), log(0, 1, 4)]
    near = [log(1, 2, 2), log(1, 2, 4)]
    expected = [0.85 * w + 0.10 * o + 0.05 * n for w, o, n in zip(words, ordered, near, strict=True)]
    assert [first, second] == pytest.approx(expected)


def test_pages_without_any_text_are_refused() -> None:
    with pytest.raises(RetrieverError, match="no page in the page store at memory has text to read"):
        SequentialDependence(Texts({"1": " ", "2": ""}), name="sequential")
