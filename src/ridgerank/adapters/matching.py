"""Documents as other libraries hand them over, matched with pages. Knows none of these libraries.

A library's document is not a page: it may be one of several chunks of it, or the page's image under a name
the store never heard of. Documents of the same page share its score and stand together, in the order given.
"""

import base64
import binascii
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL.Image import Image

from ridgerank.documents.identity import digest_bytes, file_page_id
from ridgerank.documents.images import decode_image
from ridgerank.documents.pages import page_from_image
from ridgerank.errors import DocumentError, ScoreError, StoreError
from ridgerank.ragged import Floats
from ridgerank.ranking.candidates import CandidateLike
from ridgerank.ranking.reranker import Reranker
from ridgerank.records import RankedPage

PAGE_KEY = "page_id"
"""Where metadata names a document's page, by id or reference."""
SCORE_KEY = "score"
"""Where metadata holds the retriever's score."""
_SHOWN_CHARACTERS = 40


@dataclass(frozen=True, slots=True, eq=False)
class Offered:
    """What a document tells of its page."""

    names: tuple[object, ...]
    """What may be the page's id or reference, tried in this order; anything but text is passed over."""
    score: float | None = None
    """The retriever's score, None where the library carries none."""
    image: Callable[[], Image | bytes] | None = None
    """The page's image, or the bytes of its file, fetched only where no name is known to the store."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A document in its final place."""

    place: int
    """Which of the documents, counted from 0."""
    page: RankedPage


def rank_offered(
    reranker: Reranker, query: str, documents: Sequence[Offered], *, top_k: int | None = None
) -> list[Placed]:
    """Put documents in order, best first; the best `top_k` of them, or all.

    A document is found by its names, else by its image, else the image is encoded on the fly.
    """
    places: dict[str, list[int]] = defaultdict(list)
    candidates: list[CandidateLike] = []
    images: dict[str, Image] = {}
    for place, document in enumerate(documents):
        page_id = _page_of(reranker, document, f"document {place + 1} of {len(documents)}", images)
        places[page_id].append(place)
        candidates.append(page_id if document.score is None else (page_id, document.score))
    ranking = reranker.rank(query, candidates, top_k=top_k, encode_missing=images or None)
    return [Placed(place, page) for page in ranking.pages for place in places[page.page_id]][:top_k]


def score_pairs(reranker: Reranker, pairs: Sequence[tuple[str, Offered]]) -> Floats:
    """Fused scores (pairs,): the pairs of one query are ranked together, wherever they stand."""
    scores = np.zeros(len(pairs))
    places: dict[str, list[int]] = defaultdict(list)
    for place, (query, _) in enumerate(pairs):
        places[query].append(place)
    for query, own in places.items():
        for placed in rank_offered(reranker, query, [pairs[place][1] for place in own]):
            scores[own[placed.place]] = placed.page.fused_score
    return scores


def score_in(metadata: Mapping[str, object], key: str) -> float | None:
    """The retriever's score where metadata holds one; anything but a number is refused."""
    found = metadata.get(key)
    if found is None:
        return None
    try:
        return float(found)  # type: ignore[arg-type]  # frameworks hold numpy's numbers too
    except (TypeError, ValueError) as error:
        raise ScoreError(f"metadata[{key!r}] is {found!r}, wanted the retriever's score: a number") from error


def image_file(encoded: str | None, path: str | None) -> Callable[[], bytes] | None:
    """A way to the bytes of an image held in base64 or named by its path, None without either."""
    if encoded is not None:
        return lambda: _from_base64(encoded)
    return None if path is None else lambda: _from_path(Path(path))


def _from_base64(encoded: str) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise DocumentError(f"the image of a document is not base64 ({error}); encode it again") from error


def _from_path(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DocumentError(f"{path}: {error.strerror or error}; wanted the image of a document") from error


def _page_of(reranker: Reranker, document: Offered, which: str, images: dict[str, Image]) -> str:
    """The page id of a document; the image of a page that is in no store joins `images` under it."""
    store = reranker.store
    names = [name for name in document.names if isinstance(name, str) and name]
    for name in names:
        found = store.lookup(name)
        if found is not None:
            return found
    if document.image is None:
        shown = ", ".join(repr(_short(name)) for name in names) or "nothing"
        raise StoreError(
            f"{which} names no page of the store at {store.uri} (it says {shown}); "
            "name the page by id or reference, index it, or hand over its image"
        )
    image = document.image()
    if isinstance(image, bytes):
        page_id = file_page_id(digest_bytes(image), 1)
        if page_id in store:
            return page_id
        image = decode_image(image)
    page_id = page_from_image(image, which, max_pixels=reranker.backbone.max_pixels).page_id
    if page_id not in store:
        images[page_id] = image
    return page_id


def _short(name: str) -> str:
    return name if len(name) <= _SHOWN_CHARACTERS else name[: _SHOWN_CHARACTERS - 1] + "…"
