"""Pages that a search found, with their text and what other libraries call metadata. Knows none of them."""

from dataclasses import dataclass
from typing import Any

from ridgerank.adapters.matching import PAGE_KEY
from ridgerank.ranking.reranker import CANDIDATES, Reranker
from ridgerank.records import RankedPage

RELEVANCE_KEY = "relevance_score"
"""Where rerankers of other libraries put their score."""


@dataclass(frozen=True, slots=True)
class RetrievedPage:
    """A page and what the store knows of it."""

    page: RankedPage
    text: str

    def metadata(self, *, first_page: int) -> dict[str, Any]:
        """The page's file and number (counted from `first_page`), id, scores and rank."""
        source, _, number = self.page.reference.rpartition("#")
        place = {"source": source, "page": int(number) - 1 + first_page} if number.isdigit() else {}
        return {
            **place,
            PAGE_KEY: self.page.page_id,
            "reference": self.page.reference,
            RELEVANCE_KEY: self.page.fused_score,
            "retriever_score": self.page.retriever_score,
            "readout_score": self.page.readout_score,
            "probability": self.page.probability,
            "rank": self.page.rank,
        }


def retrieve_pages(
    reranker: Reranker, query: str, *, k: int, candidates: int = CANDIDATES, min_score: float | None = None
) -> list[RetrievedPage]:
    """Search and rerank: the `k` best of `candidates` pages (of `k` where that is more), with their text."""
    ranking = reranker.search(query, k=max(k, candidates), top_k=k, min_score=min_score)
    stored = reranker.store.pages([page.page_id for page in ranking.pages])
    return [RetrievedPage(page, row.text) for page, row in zip(ranking.pages, stored, strict=True)]
