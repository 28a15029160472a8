"""Candidates of a late interaction retriever before pages are stored: embedded first, then encoded.

The vectors made to foresee candidates are those the store gets: no page is embedded twice. It is rendered
twice, which is little beside either model. They wait in memory, so a large corpus is not foreseen.
"""

import hashlib
import logging
from collections.abc import Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image

from ridgerank.calibration.index_hook import PlannedPages
from ridgerank.documents.pages import render_pages
from ridgerank.ragged import Floats
from ridgerank.records import Candidate, Page
from ridgerank.retrievers.base import Retriever, top_candidates
from ridgerank.retrievers.encoders.base import MultiVectorEncoder
from ridgerank.retrievers.maxsim import maxsim
from ridgerank.store.page_store import PageStore
from ridgerank.store.vector_columns import VectorOrigin

logger = logging.getLogger(__name__)

_HELD_BYTES = 256 << 20
_BATCH_PAGES = 8


class EmbedFirst:
    """A `PageEmbedder` that can be asked for candidates before it is asked for vectors."""

    def __init__(
        self, encoder: MultiVectorEncoder, *, max_pixels: int, held_bytes: int = _HELD_BYTES
    ) -> None:
        """Pages are seen at `max_pixels`, the budget they will be indexed with."""
        self._encoder = encoder
        self._max_pixels = max_pixels
        self._capacity = held_bytes
        self._held: dict[bytes, NDArray[np.float16]] = {}

    @property
    def origin(self) -> VectorOrigin:
        """What the encoder is."""
        return self._encoder.origin

    def embed_pages(self, images: Sequence[Image]) -> list[NDArray[np.float16]]:
        """Vectors (vectors, dim) of each page, handed out once where they were made before."""
        vectors = []
        for image in images:
            made = self._held.pop(_key(image), None)
            vectors.append(self._encoder.embed_pages([image])[0] if made is None else made)
        return vectors

    def foresee(self, planned: PlannedPages) -> Retriever | None:
        """A retriever over the pages to be stored and those stored; None where there are too many."""
        page_ids: list[str] = []
        vectors: list[NDArray[np.float16]] = []
        read = render_pages(planned.refs, max_pixels=self._max_pixels)
        while batch := list(islice(read, _BATCH_PAGES)):
            pages = [page for page in batch if isinstance(page, Page)]
            made = self._encoder.embed_pages([page.image for page in pages])
            for page, own in zip(pages, made, strict=True):
                self._held[_key(page.image)] = own
            page_ids += [page.page_id for page in pages]
            vectors += made
            if sum(own.nbytes for own in vectors) > self._capacity:
                logger.warning(
                    "too many pages to foresee their candidates in memory: those needed for calibrating are "
                    "read again afterwards"
                )
                return None
        with PageStore.open(planned.uri) as store:
            stored = [page_id for page_id in store.page_ids() if page_id not in set(page_ids)]
            if stored and store.vectors is not None:
                lacking = set(store.vectors.missing())
                have = [page_id for page_id in stored if page_id not in lacking]
                if have:
                    block = store.vectors.take(have)
                    page_ids += have
                    vectors += np.split(block.vectors, np.cumsum(block.lengths)[:-1])
        return Foreseen(self._encoder, page_ids, vectors)


class Foreseen(Retriever):
    """Exact MaxSim over vectors in memory."""

    def __init__(
        self, encoder: MultiVectorEncoder, page_ids: list[str], vectors: list[NDArray[np.float16]]
    ) -> None:
        self.name = encoder.name
        self._encoder = encoder
        self._page_ids = page_ids
        self._vectors = np.concatenate(vectors)
        self._lengths = np.array([len(own) for own in vectors], dtype=np.int64)

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Candidate]]:
        """Search for each query."""
        return [top_candidates(self._page_ids, scores, k) for scores in self._scores(queries)]

    def score(self, query: str, page_ids: Sequence[str]) -> Floats:
        """Score given pages."""
        place = {page_id: number for number, page_id in enumerate(self._page_ids)}
        scores: Floats = self._scores([query])[0][[place[page_id] for page_id in page_ids]]
        return scores

    def _scores(self, queries: Sequence[str]) -> Floats:
        return maxsim(self._encoder.embed_queries(queries), self._vectors, self._lengths)


def _key(image: Image) -> bytes:
    header = f"{image.mode} {image.size}".encode()
    return hashlib.blake2b(header + image.tobytes(), digest_size=16).digest()
