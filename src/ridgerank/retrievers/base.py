"""The interface of a retriever, what all share, several together, and results that a file gives."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ridgerank.errors import RetrieverError, StoreError
from ridgerank.fusion.standardize import fuse_many_scores
from ridgerank.ragged import Floats, Ragged
from ridgerank.records import Candidate, Query
from ridgerank.store.page_filter import PageSelection
from ridgerank.store.page_store import PageStore
from ridgerank.trec import Run


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

    def _read_texts(self, store: PageStore, has_words: Callable[[str], object]) -> dict[str, str]:
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
        return [top_candidates(self._ids, scores, k) for scores in self._scores(queries)]

    def score(self, query: str, page_ids: Sequence[str]) -> Floats:
        """Score given pages."""
        missing = [page_id for page_id in page_ids if page_id not in self._row_of]
        if missing:
            raise StoreError(f"pages not in the page store at {self._uri}: {', '.join(missing[:5])}")
        scores: Floats = self._scores([query])[0][[self._row_of[page_id] for page_id in page_ids]]
        return scores

    @abstractmethod
    def _scores(self, queries: Sequence[str]) -> Floats:
        """(queries, pages): the score of every page."""


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


JOINED_BY = "+"
"""Between the names of the members, as in `colpali-v1.3+bm25`."""


class HybridRetriever(Retriever):
    """Retrievers over the same pages, such as late interaction and BM25, each with the same say.

    A page that one member puts among its best `k` is scored by all. Scores are standardized over the pages
    compared, eq. 1, so they compare pages of one query only.
    """

    def __init__(self, members: Sequence[Retriever]) -> None:
        self.name = JOINED_BY.join(member.name for member in members)
        self.identity = JOINED_BY.join(member.identity or member.name for member in members)
        self.source = JOINED_BY.join(member.source or member.name for member in members)
        self._members = tuple(members)
        self.members = sum(member.members for member in members)

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Candidate]]:
        """Search for each query: the best `k` of the pages that any member has among its best `k`."""
        return self._compare(queries, [member.search_many(queries, k) for member in self._members], k)

    def search_within(self, queries: Sequence[str], k: int, pages: PageSelection) -> list[list[Candidate]]:
        """The same among some pages only."""
        found = [member.search_within(queries, k, pages) for member in self._members]
        return self._compare(queries, found, k)

    def score(self, query: str, page_ids: Sequence[str]) -> Floats:
        """The mean of the members' scores, each standardized over the given pages."""
        if not page_ids:
            return np.zeros(0)
        scores = np.stack([member.score(query, page_ids) for member in self._members])
        return fuse_many_scores(scores, np.ones(len(scores)), Ragged.of_lengths([len(page_ids)]))

    def _compare(
        self, queries: Sequence[str], of_members: Sequence[list[list[Candidate]]], k: int
    ) -> list[list[Candidate]]:
        best: list[list[Candidate]] = []
        for query, *lists in zip(queries, *of_members, strict=True):
            page_ids = sorted({candidate.page_id for candidates in lists for candidate in candidates})
            best.append(top_candidates(page_ids, self.score(query, page_ids), k))
        return best


class GivenCandidates(Retriever):
    """The results of a retriever that ran elsewhere, by the id or the text of a query."""

    def __init__(
        self,
        run: Run,
        queries: Iterable[Query] = (),
        *,
        resolve: Callable[[str], str] = str,
        name: str = "run",
    ) -> None:
        """Take a run, the queries its ids stand for, and what goes from a page's name to its id."""
        self.name = name
        self._scores: dict[str, dict[str, float]] = {}
        for query, pages in run.to_dict().items():
            by_id = {resolve(page): score for page, score in pages.items()}
            if len(by_id) < len(pages):
                raise RetrieverError(f"a page is given twice for query {query!r}, by two names; keep one")
            self._scores[query] = by_id
        for each in queries:
            if each.query_id in self._scores:
                self._scores.setdefault(each.text, self._scores[each.query_id])

    def answers(self, query: str) -> bool:
        """Whether candidates were given for this query."""
        return query in self._scores

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Candidate]]:
        """Return the candidates given for each query."""
        candidates = [self._candidates_for(query) for query in queries]
        return [top_candidates(list(pages), np.array(list(pages.values())), k) for pages in candidates]

    def score(self, query: str, page_ids: Sequence[str]) -> Floats:
        """Return the scores of given pages."""
        scores = self._candidates_for(query)
        missing = [page_id for page_id in page_ids if page_id not in scores]
        if missing:
            raise RetrieverError(
                f"{self.name} has no score for {len(missing)} pages under query {query!r}, such as "
                f"{missing[0]!r}; rank its own candidates"
            )
        return np.array([scores[page_id] for page_id in page_ids], dtype=np.float64)

    def _candidates_for(self, query: str) -> dict[str, float]:
        if query not in self._scores:
            raise RetrieverError(
                f"{self.name} holds no candidates for the query {query!r}, only for {len(self._scores)} "
                "others; give candidates for it"
            )
        return self._scores[query]
