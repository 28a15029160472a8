"""The interface of a retriever, and what all of them share. Pages are known by their ids only."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from ridgerank.errors import RetrieverError, StoreError
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
    """What it is, for reports."""
    identity: str = ""
    """A digest of the weights and settings that scores depend on; empty if the name says all of it."""
    source: str = ""
    """What it can be loaded by, from any working directory; empty if that is the name."""
    members: int = 1
    """How many retrievers its scores come from."""

    def answers(self, query: str) -> bool:
        """Whether it can search for any query, or knows this one."""
        return True

    def search(self, query: str, k: int) -> list[Candidate]:
        """Return the best `k` pages, best first, ties by page id; all pages if there are fewer."""
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


class AmongPages(Retriever):
    """Another retriever's search among some pages, on its own scale."""

    def __init__(self, retriever: Retriever, pages: PageSelection) -> None:
        self._retriever, self._pages = retriever, pages
        self.name, self.members = retriever.name, retriever.members

    def answers(self, query: str) -> bool:
        """As the retriever does."""
        return self._retriever.answers(query)

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Candidate]]:
        """Search for each query among the pages."""
        return self._retriever.search_within(queries, k, self._pages)

    def score(self, query: str, page_ids: Sequence[str]) -> Floats:
        """As the retriever does."""
        return self._retriever.score(query, page_ids)


class TextRetriever(Retriever):
    """Pages by their text; what BM25 and dense retrieval share."""

    def _read_texts(self, store: TextCollection, has_words: Callable[[str], object]) -> dict[str, str]:
        """Texts by page id; a store without pages, or without any page that has words, is refused."""
        texts = store.texts()
        if not texts:
            raise RetrieverError(f"the page store at {store.uri} is empty; index documents first")
        if not any(map(has_words, texts.values())):
            raise RetrieverError(
                f"none of the {len(texts)} pages in the page store at {store.uri} has a text layer, so "
                f"{self.name} has nothing to search; index with a late interaction retriever, or with OCR"
            )
        self._uri = store.uri
        self._ids = list(texts)
        self._row_of = {page_id: row for row, page_id in enumerate(self._ids)}
        return texts

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Candidate]]:
        """Search for each query."""
        require_queries(queries, k)
        return [top_candidates(self._ids, scores, k) for scores in self._scores(queries)]

    def score(self, query: str, page_ids: Sequence[str]) -> Floats:
        """Score given pages."""
        require_queries([query])
        missing = [page_id for page_id in page_ids if page_id not in self._row_of]
        if missing:
            raise StoreError(f"pages not in the page store at {self._uri}: {', '.join(missing[:5])}")
        scores: Floats = self._scores([query])[0][[self._row_of[page_id] for page_id in page_ids]]
        return scores

    @abstractmethod
    def _scores(self, queries: Sequence[str]) -> Floats:
        """(queries, pages): the score of every page."""


def require_queries(queries: Sequence[str], k: int = 1) -> None:
    """Refuse empty queries, and a `k` below 1."""
    if k < 1:
        raise RetrieverError(f"k is {k}, expected at least 1")
    empty = [position for position, query in enumerate(queries) if not query.strip()]
    if empty:
        raise RetrieverError(f"query {empty[0] + 1} of {len(queries)} must not be empty")


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
