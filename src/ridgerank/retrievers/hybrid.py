"""Several retrievers as one: candidates of each, ordered by the mean of their standardized scores."""

from collections.abc import Sequence

import numpy as np

from ridgerank.fusion.standardize import fuse_many_scores
from ridgerank.ragged import Floats, Ragged
from ridgerank.records import Candidate
from ridgerank.retrievers.base import Retriever, require_queries, top_candidates
from ridgerank.store.page_filter import PageSelection

JOINED_BY = "+"
"""Between the names of the members, as in `colpali-v1.3+bm25`."""


class HybridRetriever(Retriever):
    """Retrievers over the same pages, such as late interaction and BM25, each with the same say.

    A page that one member puts among its best `k` is scored by all. Scores are standardized over the pages
    compared, eq. 1, so they compare pages of one query only.
    """

    def __init__(self, members: Sequence[Retriever]) -> None:
        self.name = JOINED_BY.join(member.name for member in members)
        self._members = tuple(members)

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
