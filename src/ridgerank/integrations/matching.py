"""Documents of other libraries, matched with pages. Knows none of these libraries.

A library's document may name a page, be one of several chunks of it, or a text or an image of its own.
Documents of the same page share its score and stand together, in the order given.
"""

import base64
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, SupportsFloat, Unpack

import numpy as np

from ridgerank.ragged import Floats
from ridgerank.records import RankedPage
from ridgerank.reranker.candidates import Document, ListOptions
from ridgerank.reranker.reranker import CANDIDATES, Reranker

log = logging.getLogger(__name__)

PAGE_KEY = "page_id"
"""Where metadata names a document's page, by id or reference."""
SCORE_KEYS = ("score", "_score", "@search.score")
"""Where metadata holds the retriever's score: LangChain's guides, Elasticsearch, Azure AI Search."""
DISTANCE_KEYS = ("distance", "_distance")
"""Where it holds a distance, the smaller the better: Chroma and FAISS, LanceDB."""
RELEVANCE_KEY = "relevance_score"
"""Where rerankers of other libraries put their score."""


def rank_documents(
    reranker: Reranker,
    query: str,
    documents: Sequence[Document],
    *,
    top_k: int | None = None,
    **options: Unpack[ListOptions],
) -> list[tuple[int, RankedPage]]:
    """Put documents in order, best first: the index of each, and the page it was ranked by.

    The best `top_k` of them, or all. What the ranking's reasons say is logged.
    """
    candidates = reranker.prepare(query, documents, **options)
    [ranking] = reranker.rank_lists([candidates])
    for reason in ranking.reasons:
        log.warning("%s", reason)
    indices: dict[str, list[int]] = defaultdict(list)  # page id → its documents
    for index, page_id in enumerate(candidates.sent):
        indices[page_id].append(index)
    return [(index, page) for page in ranking.pages for index in indices[page.page_id]][:top_k]


def score_pairs(
    reranker: Reranker, pairs: Sequence[tuple[str, Document]], *, readout_alone: bool = False
) -> Floats:
    """Fused scores (pairs,): the pairs of one query are ranked together, wherever they stand.

    With `readout_alone` each is the readout's score of its own pair, which depends on no other.
    """
    scores = np.zeros(len(pairs))
    indices: dict[str, list[int]] = defaultdict(list)  # query → its pairs
    for index, (query, _) in enumerate(pairs):
        indices[query].append(index)
    for query, query_indices in indices.items():
        documents = [pairs[index][1] for index in query_indices]
        weight = 1.0 if readout_alone else None
        for index, page in rank_documents(reranker, query, documents, weight=weight, on_missing="error"):
            scores[query_indices[index]] = page.readout_score if readout_alone else page.fused_score
    return scores


def score_in(metadata: Mapping[str, object], key: str | None = None) -> float | None:
    """The retriever's score, at `key` or where one of the usual libraries puts it; None without a number."""
    signs = {key: 1.0} if key else dict.fromkeys(SCORE_KEYS, 1.0) | dict.fromkeys(DISTANCE_KEYS, -1.0)
    for name, sign in signs.items():
        score = metadata.get(name)
        if isinstance(score, SupportsFloat) and not isinstance(score, str):
            return sign * float(score)
    return None


def image_loader(encoded: str | None, path: str | None) -> Callable[[], bytes] | None:
    """A function that reads the bytes of an image from base64 or from a path, None without either."""
    if encoded is not None:
        return lambda: base64.b64decode(encoded, validate=True)
    return None if path is None else Path(path).read_bytes


def page_metadata(page: RankedPage, *, first_page: int) -> dict[str, Any]:
    """The page's file and number (counted from `first_page`), id, scores and rank."""
    source, _, number = page.reference.rpartition("#")
    place = {"source": source, "page": int(number) - 1 + first_page} if number.isdigit() else {}
    return {
        **place,
        PAGE_KEY: page.page_id,
        "reference": page.reference,
        RELEVANCE_KEY: page.relevance_score,
        "retriever_score": page.retriever_score,
        "readout_score": page.readout_score,
        "rank": page.rank,
    }


def retrieve_pages(
    reranker: Reranker, query: str, *, k: int, candidates: int = CANDIDATES, min_score: float | None = None
) -> list[tuple[RankedPage, str]]:
    """Search and rerank: the `k` best of `candidates` pages (of `k` if that is more), each with its text."""
    ranking = reranker.search(query, k=max(k, candidates), top_k=k, min_score=min_score)
    stored = reranker.store.pages([page.page_id for page in ranking.pages])
    return [(page, row.text) for page, row in zip(ranking.pages, stored, strict=True)]
