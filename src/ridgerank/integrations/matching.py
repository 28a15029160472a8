"""Documents of other libraries, matched with pages. Knows none of these libraries.

A library's document is not a page: it may be one of several chunks of it, or the page's image under a name
the store does not know. Documents of the same page share its score and stand together, in the order given.
"""

import base64
import binascii
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL.Image import Image

from ridgerank.documents.images import decode_image
from ridgerank.documents.render import page_from_image
from ridgerank.documents.sources import digest_bytes, file_page_id, text_page_id
from ridgerank.errors import DocumentError, ScoreError, StoreError
from ridgerank.ragged import Floats
from ridgerank.records import RankedPage
from ridgerank.reranker.candidates import CandidateLike
from ridgerank.reranker.reranker import CANDIDATES, Reranker

PAGE_KEY = "page_id"
"""Where metadata names a document's page, by id or reference."""
SCORE_KEY = "score"
"""Where metadata holds the retriever's score."""
RELEVANCE_KEY = "relevance_score"
"""Where rerankers of other libraries put their score."""


@dataclass(frozen=True, slots=True, eq=False)
class LibraryDocument:
    """A document of another library: what may lead to its page, and its score."""

    names: tuple[object, ...]
    """What may be the page's id or reference, tried in this order; anything but text is skipped."""
    score: float | None = None
    """The retriever's score, None if the library has none."""
    image: Callable[[], Image | bytes] | None = None
    """The page's image, or the bytes of its file, fetched only if the store knows no name."""
    text: str | None = None
    """A text that is a page by itself if the store knows no name; None if texts only name pages."""

    @property
    def page_names(self) -> list[str]:
        """The names that are text."""
        return [name for name in self.names if isinstance(name, str) and name]


def rank_documents(
    reranker: Reranker,
    query: str,
    documents: Sequence[LibraryDocument],
    *,
    top_k: int | None = None,
    weight: float | None = None,
) -> list[tuple[int, RankedPage]]:
    """Put documents in order, best first: the index of each, and the page it was ranked by.

    The best `top_k` of them, or all; at the calibrated weight unless one is given.

    A document is matched by its names, else by its image, else the image or its text is encoded on the fly.
    The store is asked for all names at once.
    """
    known_pages = reranker.store.lookup_many(name for document in documents for name in document.page_names)
    indices: dict[str, list[int]] = defaultdict(list)  # page id → its documents
    candidates: list[CandidateLike] = []
    unstored: dict[str, Image | str] = {}
    for index, document in enumerate(documents):
        page_id = next((known_pages[name] for name in document.page_names if name in known_pages), None)
        if page_id is None:
            page_id = _match_content(
                reranker, document, f"document {index + 1} of {len(documents)}", unstored
            )
        indices[page_id].append(index)
        candidates.append(page_id if document.score is None else (page_id, document.score))
    ranking = reranker.rank(query, candidates, top_k=top_k, encode_missing=unstored or None, weight=weight)
    return [(index, page) for page in ranking.pages for index in indices[page.page_id]][:top_k]


def score_pairs(
    reranker: Reranker, pairs: Sequence[tuple[str, LibraryDocument]], *, readout_alone: bool = False
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
        for index, page in rank_documents(reranker, query, documents, weight=1.0 if readout_alone else None):
            scores[query_indices[index]] = page.readout_score if readout_alone else page.fused_score
    return scores


def score_in(metadata: Mapping[str, object], key: str) -> float | None:
    """The retriever's score if metadata holds one; anything but a number is refused."""
    score = metadata.get(key)
    if score is None:
        return None
    try:
        return float(score)  # type: ignore[arg-type]  # frameworks hold numpy's numbers too
    except (TypeError, ValueError) as error:
        raise ScoreError(
            f"metadata[{key!r}] is {score!r}, expected the retriever's score: a number"
        ) from error


def image_loader(encoded: str | None, path: str | None) -> Callable[[], bytes] | None:
    """A function that reads the bytes of an image from base64 or from a path, None without either."""
    if encoded is not None:
        return lambda: _read_base64(encoded)
    return None if path is None else lambda: _read_path(Path(path))


def _read_base64(encoded: str) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise DocumentError(f"the image of a document is not base64 ({error}); encode it again") from error


def _read_path(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DocumentError(f"{path}: {error.strerror or error}; expected the image of a document") from error


def _match_content(
    reranker: Reranker, document: LibraryDocument, description: str, unstored: dict[str, Image | str]
) -> str:
    """The page id of a document's image or text; what is not stored is added to `unstored`."""
    store, budget = reranker.store, reranker.backbone.page_budget
    if document.image is None and document.text is not None:
        page_id = text_page_id(document.text)
        unstored[page_id] = document.text
        return page_id
    if document.image is None:
        shown = [repr(name if len(name) <= 40 else f"{name[:39]}…") for name in document.page_names]
        raise StoreError(
            f"{description} names no page of the store at {store.uri} "
            f"(it says {', '.join(shown) or 'nothing'}); name the page by id or reference, index it, or "
            "hand over its image"
        )
    image = document.image()
    if isinstance(image, bytes):
        page_id = file_page_id(digest_bytes(image), 1)
        if page_id in store:
            return page_id
        image = decode_image(image)
    page_id = page_from_image(image, description, max_pixels=budget).page_id
    if page_id not in store:
        unstored[page_id] = image
    return page_id


def page_metadata(page: RankedPage, *, first_page: int) -> dict[str, Any]:
    """The page's file and number (counted from `first_page`), id, scores and rank."""
    source, _, number = page.reference.rpartition("#")
    place = {"source": source, "page": int(number) - 1 + first_page} if number.isdigit() else {}
    return {
        **place,
        PAGE_KEY: page.page_id,
        "reference": page.reference,
        RELEVANCE_KEY: page.fused_score,
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
