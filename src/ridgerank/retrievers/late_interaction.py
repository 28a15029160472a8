"""Late interaction over a store: exact MaxSim over every page, or over the pages an index proposes.

The index, if a store has one, only chooses which pages are scored: scores are exact either way.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ridgerank.errors import LineageMismatch, RetrieverError
from ridgerank.ragged import Floats
from ridgerank.records import Candidate
from ridgerank.retrievers.base import Retriever, top_candidates
from ridgerank.retrievers.encoders import MultiVectorEncoder
from ridgerank.store.page_filter import PageSelection
from ridgerank.store.page_store import PageStore
from ridgerank.store.vector_columns import VectorBlock, VectorColumn

_PAGES_RESCORED = 10
"""Pages from the index that are scored exactly, per page to return …"""
_PAGES_RESCORED_AT_LEAST = 200
"""… and the least number of them."""
_QUERIES_AT_ONCE = 64
"""Queries that share one reading of the store."""
_RESIDENT_BYTES = 256 << 20
"""Vectors of a store up to this size are kept in memory after they were first read."""


class LateInteraction(Retriever):
    """A late interaction model and its vectors of a store's pages."""

    def __init__(self, encoder: MultiVectorEncoder, store: PageStore) -> None:
        self.name, self.source = encoder.name, encoder.source
        self.identity = encoder.origin.fingerprint
        self._encoder = encoder
        self._column = _require_vectors(encoder, store)
        self._indexed = self._column.indexed
        self._resident: list[VectorBlock] | None = None
        """All blocks, once they were read and are few enough to keep."""

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Candidate]]:
        """Search for each query; queries share the reading of the store."""
        return self.search_within(queries, k, None)

    def search_within(
        self, queries: Sequence[str], k: int, pages: PageSelection | None
    ) -> list[list[Candidate]]:
        """Search for each query among some pages, or all; an index is asked for these only."""
        candidates: list[list[Candidate]] = []
        for start in range(0, len(queries), _QUERIES_AT_ONCE):
            embedded = self._encoder.embed_queries(queries[start : start + _QUERIES_AT_ONCE])
            if self._indexed:
                candidates += [self._search_index(query, k, pages) for query in embedded]
            else:
                candidates += self._search_all(embedded, k, pages)
        return candidates

    def score(self, query: str, page_ids: Sequence[str]) -> Floats:
        """Score given pages."""
        if not page_ids:
            return np.zeros(0)
        return self._score(self._encoder.embed_queries([query])[0], page_ids)

    def _search_all(
        self, queries: Sequence[Tensor], k: int, pages: PageSelection | None
    ) -> list[list[Candidate]]:
        page_ids: list[str] = []
        scores: list[Floats] = [np.zeros((len(queries), 0))]
        for block in self._blocks():
            kept = [row for row, name in enumerate(block.page_ids) if pages is None or name in pages.page_ids]
            page_ids += [block.page_ids[row] for row in kept]
            scores.append(maxsim(queries, block.vectors, block.lengths)[:, kept])
        return [top_candidates(page_ids, row, k) for row in np.concatenate(scores, axis=1)]

    def _search_index(self, query: Tensor, k: int, pages: PageSelection | None) -> list[Candidate]:
        rescored = max(_PAGES_RESCORED_AT_LEAST, _PAGES_RESCORED * k)
        if pages is not None and len(pages.page_ids) <= rescored:
            page_ids = sorted(pages.page_ids)  # all of them would be scored: nothing to ask the index
        else:
            condition = None if pages is None else pages.condition
            page_ids = self._column.nearest(query.cpu().numpy(), rescored, condition=condition)
        return top_candidates(page_ids, self._score(query, page_ids), k)

    def _score(self, query: Tensor, page_ids: Sequence[str]) -> Floats:
        block = self._column.take(page_ids)
        scores: Floats = maxsim([query], block.vectors, block.lengths)[0]
        return scores

    def _blocks(self) -> Iterator[VectorBlock]:
        if self._resident is not None:
            yield from self._resident
            return
        blocks: list[VectorBlock] | None = []
        nbytes = 0
        for block in self._column.blocks():
            yield block
            nbytes += block.vectors.nbytes
            blocks = None if blocks is None or nbytes > _RESIDENT_BYTES else [*blocks, block]
        self._resident = blocks


def _require_vectors(encoder: MultiVectorEncoder, store: PageStore) -> VectorColumn:
    """The store's vectors; refused unless this encoder made them and every page has them."""
    column = store.vectors
    if len(store) == 0:
        raise RetrieverError(f"the page store at {store.uri} is empty; index documents first")
    if column is None:
        raise RetrieverError(
            f"the page store at {store.uri} holds no vectors, and {encoder.name} needs its own; index the "
            f"documents with the retriever {encoder.source}"
        )
    stored, current = column.origin, encoder.origin
    if (stored.fingerprint, stored.dim) != (current.fingerprint, current.dim):
        raise LineageMismatch(
            f"the page store at {store.uri} holds vectors of {stored.source!r} ({stored.fingerprint}), not "
            f"of {current.source!r} ({current.fingerprint}); use that retriever, or index into another store"
        )
    missing = column.missing()
    if missing:
        raise RetrieverError(
            f"{len(missing)} of {len(store)} pages in the page store at {store.uri} have no vectors, "
            f"{store.pages(missing[:1])[0].references[0]} among them; index their documents with the "
            f"retriever {stored.source}"
        )
    return column


_MAX_PRODUCTS = 1 << 23
"""Inner products held at a time, 32 MiB in float32."""


def maxsim(queries: Sequence[Tensor], vectors: NDArray[np.float16], lengths: NDArray[np.int64]) -> Floats:
    """Scores (queries, pages) of queries, each (tokens, dim), over pages' vectors laid end to end.

    `vectors` is (vectors, dim) and page p has `lengths[p]` of them, at least one. Computed in float32 on the
    device of the queries.
    """
    device = queries[0].device
    tokens = torch.cat(list(queries)).float()
    pages = torch.from_numpy(vectors).to(device).float()
    step = max(1, _MAX_PRODUCTS // max(1, len(pages)))
    matches = [_max_per_page(pages @ chunk.T, lengths) for chunk in torch.split(tokens, step)]
    per_query = torch.split(torch.cat(matches, dim=1), [len(query) for query in queries], dim=1)
    return torch.stack([maxima.sum(1) for maxima in per_query]).cpu().numpy().astype(np.float64)


def _max_per_page(products: Tensor, lengths: NDArray[np.int64]) -> Tensor:
    """(pages, tokens): the highest product on each page, of (vectors, tokens)."""
    if (lengths == lengths[0]).all():  # as most models make them; many times faster
        return products.view(len(lengths), lengths[0], -1).amax(1)
    return torch.segment_reduce(
        products, "max", lengths=torch.from_numpy(lengths).to(products.device), axis=0
    )
