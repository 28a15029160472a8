"""Late interaction over a store: exact MaxSim over every page, or over those an index brings up.

The index, where a store has one, only chooses which pages are scored: scores are exact either way.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from torch import Tensor

from ridgerank.errors import LineageMismatch, RetrieverError
from ridgerank.ragged import Floats
from ridgerank.records import Candidate
from ridgerank.retrievers.base import Retriever, best, require_queries
from ridgerank.retrievers.encoders.base import MultiVectorEncoder
from ridgerank.retrievers.maxsim import maxsim
from ridgerank.store.page_store import PageStore
from ridgerank.store.vector_columns import VectorBlock, VectorColumn

_PAGES_RESCORED = 10
"""For each page wanted, so many of those the index brings up are scored exactly …"""
_PAGES_RESCORED_AT_LEAST = 200
"""… but never fewer than these."""
_QUERIES_AT_ONCE = 64
"""Queries that share one reading of the store."""
_PAGES_COMPARED = 4096
"""Pages scored before only the best are kept."""
_RESIDENT_BYTES = 256 << 20
"""Vectors of a store up to this size are kept in memory after they were first read."""


class LateInteraction(Retriever):
    """A late interaction model and the vectors it made of a store's pages."""

    def __init__(self, encoder: MultiVectorEncoder, store: PageStore) -> None:
        self.name = encoder.name
        self._encoder = encoder
        self._column = _vectors_of(encoder, store)
        self._indexed = self._column.indexed
        self._resident: list[VectorBlock] | None = None
        """All blocks, once they were read and are few enough to keep."""

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Candidate]]:
        """Search for each query; queries share the reading of the store."""
        require_queries(queries, k)
        found: list[list[Candidate]] = []
        for start in range(0, len(queries), _QUERIES_AT_ONCE):
            embedded = self._encoder.embed_queries(queries[start : start + _QUERIES_AT_ONCE])
            if self._indexed:
                found += [self._search_index(query, k) for query in embedded]
            else:
                found += self._search_all(embedded, k)
        return found

    def score(self, query: str, page_ids: Sequence[str]) -> Floats:
        """Score given pages."""
        require_queries([query])
        if not page_ids:
            return np.zeros(0)
        return self._score(self._encoder.embed_queries([query])[0], page_ids)

    def _search_all(self, queries: Sequence[Tensor], k: int) -> list[list[Candidate]]:
        """Keep the best k of each query while blocks go by: memory does not grow with the store."""
        leading: list[list[Candidate]] = [[] for _ in queries]
        page_ids: list[str] = []
        scores: list[Floats] = []
        for block in self._blocks():
            page_ids += block.page_ids
            scores.append(maxsim(queries, block.vectors, block.lengths))
            if len(page_ids) >= _PAGES_COMPARED:
                leading = _leading(leading, page_ids, scores, k)
                page_ids, scores = [], []
        return _leading(leading, page_ids, scores, k) if page_ids else leading

    def _search_index(self, query: Tensor, k: int) -> list[Candidate]:
        rescored = max(_PAGES_RESCORED_AT_LEAST, _PAGES_RESCORED * k)
        page_ids = self._column.nearest(query.cpu().numpy(), rescored)
        return best(page_ids, self._score(query, page_ids), k)

    def _score(self, query: Tensor, page_ids: Sequence[str]) -> Floats:
        block = self._column.take(page_ids)
        scores: Floats = maxsim([query], block.vectors, block.lengths)[0]
        return scores

    def _blocks(self) -> Iterator[VectorBlock]:
        if self._resident is not None:
            yield from self._resident
            return
        kept: list[VectorBlock] | None = []
        nbytes = 0
        for block in self._column.blocks():
            yield block
            nbytes += block.vectors.nbytes
            kept = None if kept is None or nbytes > _RESIDENT_BYTES else [*kept, block]
        self._resident = kept


def _leading(
    before: Sequence[list[Candidate]], page_ids: list[str], scores: Sequence[Floats], k: int
) -> list[list[Candidate]]:
    """The best k of each query, among those leading before and further pages."""
    rows = np.concatenate(scores, axis=1)
    return [
        best(
            [*(one.page_id for one in found), *page_ids],
            np.concatenate([[one.score for one in found], row]),
            k,
        )
        for found, row in zip(before, rows, strict=True)
    ]


def _vectors_of(encoder: MultiVectorEncoder, store: PageStore) -> VectorColumn:
    """The store's vectors, refused unless this encoder made them, of every page."""
    column = store.vectors
    if len(store) == 0:
        raise RetrieverError(f"the page store at {store.uri} is empty; index documents first")
    if column is None:
        raise RetrieverError(
            f"the page store at {store.uri} holds no vectors, and {encoder.name} needs its own; add "
            f"them with `ridgerank index DOCUMENTS --store {store.uri} --retriever {encoder.source}`"
        )
    made, at_hand = column.origin, encoder.origin
    if (made.fingerprint, made.dim) != (at_hand.fingerprint, at_hand.dim):
        raise LineageMismatch(
            f"the page store at {store.uri} holds vectors of {made.source!r} ({made.fingerprint}), not of "
            f"{at_hand.source!r} ({at_hand.fingerprint}); use that retriever, or index into another store"
        )
    missing = column.missing()
    if missing:
        raise RetrieverError(
            f"{len(missing)} of {len(store)} pages in the page store at {store.uri} have no vectors, "
            f"{store.pages(missing[:1])[0].references[0]} among them; add them with "
            f"`ridgerank index DOCUMENTS --store {store.uri} --retriever {made.source}`"
        )
    return column
