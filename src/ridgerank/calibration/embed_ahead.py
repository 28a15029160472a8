"""Candidates of a late interaction retriever before pages are stored: embedded first, then encoded.

The store gets the vectors that were computed to predict candidates: no page is embedded twice. It is rendered
twice, which costs little beside either model. The vectors are held in memory, so the candidates of a large
corpus are not predicted.
"""

import hashlib
import logging
from collections.abc import Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image

from ridgerank.calibration.index_hook import PendingCorpus
from ridgerank.documents.pages import render_pages
from ridgerank.page_sizing import PixelBudget
from ridgerank.ragged import Floats
from ridgerank.records import Candidate, Page
from ridgerank.retrievers.base import Retriever, top_candidates
from ridgerank.retrievers.encoders.base import MultiVectorEncoder
from ridgerank.retrievers.maxsim import maxsim
from ridgerank.store.page_store import PageStore
from ridgerank.store.vector_columns import VectorOrigin

logger = logging.getLogger(__name__)

_CAPACITY_BYTES = 256 << 20
_BATCH_PAGES = 8


class AheadEmbedder:
    """A `PageEmbedder` that can embed pages ahead, to search them before they are stored."""

    def __init__(
        self, encoder: MultiVectorEncoder, *, max_pixels: PixelBudget, capacity_bytes: int = _CAPACITY_BYTES
    ) -> None:
        """Pages are rendered at `max_pixels`, the budget they will be indexed with."""
        self._encoder = encoder
        self._max_pixels = max_pixels
        self._capacity_bytes = capacity_bytes
        self._vectors_by_image: dict[bytes, NDArray[np.float16]] = {}

    @property
    def origin(self) -> VectorOrigin:
        """What the encoder is."""
        return self._encoder.origin

    def embed_pages(self, images: Sequence[Image]) -> list[NDArray[np.float16]]:
        """Vectors (vectors, dim) of each page; vectors computed ahead are handed out once."""
        vectors = []
        for image in images:
            page_vectors = self._vectors_by_image.pop(_image_digest(image), None)
            if page_vectors is None:
                [page_vectors] = self._encoder.embed_pages([image])
            vectors.append(page_vectors)
        return vectors

    def make_retriever(self, corpus: PendingCorpus) -> Retriever | None:
        """Embed the pending pages and search them with the stored ones; None where there are too many."""
        page_ids: list[str] = []
        vectors: list[NDArray[np.float16]] = []
        rendered = render_pages(corpus.pending, max_pixels=self._max_pixels)
        while batch := list(islice(rendered, _BATCH_PAGES)):
            pages = [page for page in batch if isinstance(page, Page)]
            batch_vectors = self._encoder.embed_pages([page.image for page in pages])
            for page, page_vectors in zip(pages, batch_vectors, strict=True):
                self._vectors_by_image[_image_digest(page.image)] = page_vectors
            page_ids += [page.page_id for page in pages]
            vectors += batch_vectors
            if sum(page_vectors.nbytes for page_vectors in vectors) > self._capacity_bytes:
                logger.warning(
                    "too many pages to foresee their candidates in memory: those needed for calibrating are "
                    "read again afterwards"
                )
                return None
        with PageStore.open(corpus.uri) as store:
            stored = [page_id for page_id in store.page_ids() if page_id not in set(page_ids)]
            if stored and store.vectors is not None:
                missing = set(store.vectors.missing())
                embedded = [page_id for page_id in stored if page_id not in missing]
                if embedded:
                    block = store.vectors.take(embedded)
                    page_ids += embedded
                    vectors += np.split(block.vectors, np.cumsum(block.lengths)[:-1])
        return InMemoryLateInteraction(self._encoder, page_ids, vectors)


class InMemoryLateInteraction(Retriever):
    """Exact MaxSim over vectors in memory."""

    def __init__(
        self, encoder: MultiVectorEncoder, page_ids: list[str], vectors: list[NDArray[np.float16]]
    ) -> None:
        self.name = encoder.name
        self._encoder = encoder
        self._page_ids = page_ids
        self._vectors = np.concatenate(vectors)
        self._lengths = np.array([len(page_vectors) for page_vectors in vectors], dtype=np.int64)

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Candidate]]:
        """Search for each query."""
        return [top_candidates(self._page_ids, scores, k) for scores in self._scores(queries)]

    def score(self, query: str, page_ids: Sequence[str]) -> Floats:
        """Score given pages."""
        numbers = {page_id: number for number, page_id in enumerate(self._page_ids)}
        scores: Floats = self._scores([query])[0][[numbers[page_id] for page_id in page_ids]]
        return scores

    def _scores(self, queries: Sequence[str]) -> Floats:
        return maxsim(self._encoder.embed_queries(queries), self._vectors, self._lengths)


def _image_digest(image: Image) -> bytes:
    header = f"{image.mode} {image.size}".encode()
    return hashlib.blake2b(header + image.tobytes(), digest_size=16).digest()
