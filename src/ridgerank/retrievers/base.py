"""The interface of a retriever, and what all of them share. Pages are known by their ids only."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ridgerank.errors import RetrieverError
from ridgerank.ragged import Floats
from ridgerank.records import Candidate
from ridgerank.store.page_filter import PageSelection


class TextCollection(Protocol):
    """Pages with text: a `PageStore`, or documents that are not stored yet."""

    @property
    def uri(self) -> str:
        """Where it is, for error messages."""

    def texts(self) -> dict[str, str]:
        """The text of every page, by page id."""


class Retriever(ABC):
    """Finds the pages of one corpus that a query may be about. Build it with `load_retriever`."""

    name: str
    """What it is and how it was loaded, for reports and lineage."""

    def search(self, query: str, k: int) -> list[Candidate]:
        """Return the best `k` pages, best first, ties by page id; all pages where there are fewer."""
        return self.search_many([query], k)[0]

    @abstractmethod
    def search_many(self, queries: Sequence[str], k: int) -> list[list[Candidate]]:
        """Search for each query, in the order given."""

    def search_within(self, queries: Sequence[str], k: int, pages: PageSelection) -> list[list[Candidate]]:
        """Search for each query among some pages only; scores are those of a search among all."""
        return [
            [candidate for candidate in candidates if candidate.page_id in pages.page_ids][:k]
            for candidates in self.search_many(queries, sys.maxsize)
        ]

    @abstractmethod
    def score(self, query: str, page_ids: Sequence[str]) -> Floats:
        """Score given pages (pages,), on the scale of `search`; a page it does not know is an error."""


def require_queries(queries: Sequence[str], k: int = 1) -> None:
    """Refuse empty queries, and a `k` below 1."""
    if k < 1:
        raise RetrieverError(f"the best {k} pages were asked for; wanted at least 1")
    empty = [position for position, query in enumerate(queries) if not query.strip()]
    if empty:
        raise RetrieverError(f"query {empty[0] + 1} of {len(queries)} is empty; say what to look for")


def top_candidates(page_ids: Sequence[str], scores: Floats, k: int) -> list[Candidate]:
    """The `k` highest of `scores` (pages,), best first, equal scores in order of page id."""
    if k < len(scores):
        # All pages that tie with the k-th stay in, so that page ids decide, not the partition.
        threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
        positions = np.flatnonzero(scores >= threshold)
    else:
        positions = np.arange(len(scores))
    order = sorted(positions.tolist(), key=lambda position: (-scores[position], page_ids[position]))
    return [Candidate(page_ids[position], float(scores[position])) for position in order[:k]]
