"""A scorer that reads query and page text together and needs no weights: the sequential dependence model.

Words of the query count where they stand, and more where neighbours in the query are neighbours on the page:

    s = 0.85 Σ ln p(w) + 0.10 Σ ln p(ordered pair) + 0.05 Σ ln p(pair within eight words)

each p smoothed by the collection (Dirichlet, μ the mean length of a page). The three weights are those
commonly used with the model; nothing was tuned. It stands in for a trained text reranker where no weights of
one are at hand, and is no match for one.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from experiments.baselines.base import Baseline
from ridgerank.errors import RetrieverError
from ridgerank.ragged import Floats
from ridgerank.records import Candidate
from ridgerank.store.page_store import PageStore

WEIGHTS = (0.85, 0.10, 0.05)
"""Of words, of ordered pairs, of pairs within a window."""
WINDOW = 8
_WORD = re.compile(r"\w+")


class SequentialDependence(Baseline):
    """Joint evidence of a query's words and of their neighbourhood on the page."""

    def __init__(self, store: PageStore, *, name: str) -> None:
        self.name = name
        self._pages: Mapping[str, Sequence[str]] = {
            page_id: _WORD.findall(text.casefold()) for page_id, text in store.texts().items()
        }
        self._words = Counter(word for words in self._pages.values() for word in words)
        self._total = self._words.total()
        if not self._total:
            raise RetrieverError(
                f"no page in the page store at {store.uri} has text to read; index with --ocr, or documents "
                "that carry a text layer"
            )
        self._smoothing = self._total / len(self._pages)

    def score(self, query: str, candidates: Sequence[Candidate]) -> Floats:
        """Log evidence of the query on each page."""
        words = _WORD.findall(query.casefold())
        pairs = list(pairwise(words))
        ordered = {pair: self._everywhere(pair, ordered_count) for pair in pairs}
        near = {pair: self._everywhere(pair, window_count) for pair in pairs}
        scores = []
        for candidate in candidates:
            page = self._pages[candidate.page_id]
            counts = Counter(page)
            parts = (
                sum(self._log(counts[word], self._words[word], page) for word in words),
                sum(self._log(ordered_count(page, *pair), ordered[pair], page) for pair in pairs),
                sum(self._log(window_count(page, *pair), near[pair], page) for pair in pairs),
            )
            scores.append(sum(weight * part for weight, part in zip(WEIGHTS, parts, strict=True)))
        return np.array(scores, dtype=np.float64)

    def _log(self, count: int, everywhere: int, page: Sequence[str]) -> float:
        # Half an occurrence for what stands nowhere: all pages get the same, and none minus infinity.
        expected = self._smoothing * max(everywhere, 0.5) / self._total
        return math.log((count + expected) / (len(page) + self._smoothing))

    def _everywhere(self, pair: tuple[str, str], count: Callable[[Sequence[str], str, str], int]) -> int:
        if not (self._words[pair[0]] and self._words[pair[1]]):
            return 0
        return sum(count(page, *pair) for page in self._pages.values())


def ordered_count(page: Sequence[str], first: str, second: str) -> int:
    """How often the second word follows the first at once."""
    return sum(1 for pair in pairwise(page) if pair == (first, second))


def window_count(page: Sequence[str], first: str, second: str) -> int:
    """How often the second word stands within a window of eight words with the first, in either order."""
    positions = [position for position, word in enumerate(page) if word == second]
    return sum(
        1
        for here, word in enumerate(page)
        if word == first and any(0 < abs(position - here) < WINDOW for position in positions)
    )
