"""Stage 2: the candidates of every query, one query at a time, timed."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.base import BenchmarkCorpus
from experiments.reproduce.stages.checkpoint import Arrays, compute_in_parts, short_digest
from ridgerank.ragged import Floats
from ridgerank.records import Candidate
from ridgerank.retrievers.base import Retriever

QUERIES_PER_PART = 25


@dataclass(frozen=True, slots=True, eq=False)
class CandidatePools:
    """What a retriever returned: the same number of candidates for every query."""

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
    corpus: BenchmarkCorpus,
    retriever: Callable[[], Retriever],
    *,
    depth: int,
    done: Callable[[int], None],
) -> CandidatePools:
    """Search for every query of a corpus; `depth` pages each, or all there are."""

    def compute(items: range) -> Arrays:
        loaded = retriever()
        rankings, seconds = [], []
        for item in items:
            start = time.perf_counter()
            rankings.append(loaded.search(corpus.queries[item].text, depth))
            seconds.append(time.perf_counter() - start)
        return {
            "page_ids": np.array(
                [[candidate.page_id for candidate in ranking] for ranking in rankings], dtype="U64"
            ),
            "scores": np.array(
                [[candidate.score for candidate in ranking] for ranking in rankings], dtype=np.float64
            ),
            "retrieval_ms": 1000.0 * np.array(seconds),
        }

    arrays = compute_in_parts(
        folder / f"pools-{queries_digest(corpus)}-{depth}",
        len(corpus.queries),
        QUERIES_PER_PART,
        compute,
        done=done,
    )
    return CandidatePools(arrays["page_ids"], arrays["scores"], arrays["retrieval_ms"])


def queries_digest(corpus: BenchmarkCorpus) -> str:
    """A name for the queries of a corpus, in this order."""
    return short_digest(text for query in corpus.queries for text in (query.query_id, query.text))
