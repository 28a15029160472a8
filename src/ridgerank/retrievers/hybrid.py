"""Candidates of two retrievers together, and candidates that a file gives."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Self

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


Resolve = Callable[[str], str]
"""From a page id or a reference to a page id; `PageStore.find` is one."""


class GivenCandidates(Retriever):
    """The results of a retriever that ran elsewhere, as a `Retriever`."""

    def __init__(
        self,
        scored: Iterable[tuple[str, str, float]],
        *,
        name: str = "given",
        resolve: Resolve = str,
        queries: Iterable[Query] = (),
    ) -> None:
        """Take (query, page, score) in any order, the query by its id or its text.

        With `queries`, candidates given under a query's id are also found by its text.
        """
        self.name = name
        self._scores: dict[str, dict[str, float]] = {}
        for query, page, score in scored:
            if not math.isfinite(score):
                raise RetrieverError(
                    f"page {page!r} under query {query!r} has score {score}, expected a finite number"
                )
            page_id = resolve(page)
            pages = self._scores.setdefault(query, {})
            if page_id in pages:
                raise RetrieverError(f"page {page!r} is given twice for query {query!r}; keep one of the two")
            pages[page_id] = float(score)
        for query_record in queries:
            if query_record.query_id in self._scores:
                self._scores.setdefault(query_record.text, self._scores[query_record.query_id])

    @classmethod
    def of_run(cls, run: Run, queries: Iterable[Query], *, name: str = "run", resolve: Resolve = str) -> Self:
        """Take a run, as `read_run` reads it, and the queries its ids stand for."""
        rows = ((query, page, score) for query, page, _, score in run.rows())
        return cls(rows, name=name, resolve=resolve, queries=queries)

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
