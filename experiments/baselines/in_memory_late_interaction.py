"""Exact late interaction over vectors in memory."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ridgerank.ragged import Floats
from ridgerank.records import Candidate
from ridgerank.retrievers.base import Retriever, top_candidates
from ridgerank.retrievers.encoders import MultiVectorEncoder
from ridgerank.retrievers.late_interaction import maxsim


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
