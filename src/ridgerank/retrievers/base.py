"""What every retriever can do. It knows pages by their id only; how it scores them is its own affair."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ridgerank.errors import RetrieverError
from ridgerank.ragged import Floats
from ridgerank.records import Candidate


class HasTexts(Protocol):
    """A `PageStore`, or documents that are not stored yet."""

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

    @abstractmethod
    def score(self, query: str, page_ids: Sequence[str]) -> Floats:
        """Score given pages (pages,), on the scale of `search`; a page it does not know is an error."""


def require_queries(queries: Sequence[str], k: int = 1) -> None:
    """Refuse queries that say nothing, and fewer than one page wanted."""
    if k < 1:
        raise RetrieverError(f"the best {k} pages were asked for; wanted at least 1")
    blank = [place for place, query in enumerate(queries) if not query.strip()]
    if blank:
        raise RetrieverError(f"query {blank[0] + 1} of {len(queries)} is empty; say what to look for")


def best(page_ids: Sequence[str], scores: Floats, k: int) -> list[Candidate]:
    """The `k` highest of `scores` (pages,), best first, equal scores in order of page id."""
    if k < len(scores):
        # Everything that ties with the k-th stays in, so that page ids decide, not the partition.
        threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
        places = np.flatnonzero(scores >= threshold)
    else:
        places = np.arange(len(scores))
    order = sorted(places.tolist(), key=lambda place: (-scores[place], page_ids[place]))
    return [Candidate(page_ids[place], float(scores[place])) for place in order[:k]]
