"""Candidates of two retrievers together, and candidates that a file gives."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ridgerank.errors import RetrieverError
from ridgerank.fusion.standardize import fuse_many_scores
from ridgerank.ragged import Floats, Ragged
from ridgerank.records import Candidate, Query
from ridgerank.retrievers.base import Retriever, require_queries, top_candidates
from ridgerank.store.page_filter import PageSelection
from ridgerank.trec import Run

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
        require_queries(queries, k)
        return self._compare(queries, [member.search_many(queries, k) for member in self._members], k)

    def search_within(self, queries: Sequence[str], k: int, pages: PageSelection) -> list[list[Candidate]]:
        """The same among some pages only."""
        require_queries(queries, k)
        return self._compare(
            queries, [member.search_within(queries, k, pages) for member in self._members], k
        )

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

    name = "run"

    def __init__(
        self, run: Run, queries: Iterable[Query] = (), *, resolve: Callable[[str], str] = str
    ) -> None:
        """Take a run, the queries its ids stand for, and what goes from a page's name to its id."""
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
        require_queries(queries, k)
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
