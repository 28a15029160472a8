"""Stage 2: the candidates of every query, one query at a time, timed."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.base import Corpus
from experiments.reproduce.stages.checkpoint import Arrays, digest, in_parts
from ridgerank.ragged import Floats
from ridgerank.records import Candidate
from ridgerank.retrievers.base import Retriever

QUERIES_A_PART = 25


@dataclass(frozen=True, slots=True, eq=False)
class Pools:
    """What a retriever returned: every query has as many candidates as every other."""

    page_ids: NDArray[np.str_]
    """(queries, depth), best first."""
    scores: Floats
    """(queries, depth)."""
    retrieval_ms: Floats
    """(queries,)."""

    def of(self, query: int, depth: int) -> list[Candidate]:
        """The first candidates of one query."""
        ids, scores = self.page_ids[query, :depth].tolist(), self.scores[query, :depth].tolist()
        return [Candidate(page_id, score) for page_id, score in zip(ids, scores, strict=True)]


def find_pools(
    folder: Path,
    corpus: Corpus,
    retriever: Callable[[], Retriever],
    *,
    depth: int,
    done: Callable[[int], None],
) -> Pools:
    """Search for every query of a corpus; `depth` pages each, or all there are."""

    def make(items: range) -> Arrays:
        searching = retriever()
        found, seconds = [], []
        for item in items:
            start = time.perf_counter()
            found.append(searching.search(corpus.queries[item].text, depth))
            seconds.append(time.perf_counter() - start)
        return {
            "page_ids": np.array([[one.page_id for one in own] for own in found], dtype="U64"),
            "scores": np.array([[one.score for one in own] for own in found], dtype=np.float64),
            "retrieval_ms": 1000.0 * np.array(seconds),
        }

    kept = in_parts(
        folder / f"pools-{queries_digest(corpus)}-{depth}",
        len(corpus.queries),
        QUERIES_A_PART,
        make,
        done=done,
    )
    return Pools(kept["page_ids"], kept["scores"], kept["retrieval_ms"])


def queries_digest(corpus: Corpus) -> str:
    """Names what was asked, in this order."""
    return digest(text for query in corpus.queries for text in (query.query_id, query.text))
