import math
from collections.abc import Mapping

import pytest

from experiments.baselines.sequential_dependence import SequentialDependence, ordered_count, window_count
from ridgerank.errors import RetrieverError
from ridgerank.records import Candidate
from ridgerank.store.page_store import PageStore


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
