"""What the queue holds: works, the jobs they become, and their results."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeAlias

from ridgerank.records import Explanation, Ranking
from ridgerank.reranker.candidates import CandidateList
from ridgerank.store.page_filter import PageFilter


class CallerLeftError(Exception):
    """The caller has left, so the work is dropped."""


@dataclass(frozen=True, slots=True, eq=False)
class PreparedDocuments:
    """The documents of a request as candidates."""

    candidates: CandidateList
    page_ids: tuple[str, ...]
    """The page of each document, in the order of the request."""


@dataclass(frozen=True, slots=True)
class SearchWork:
    """Retrieve `k` pages and rank them."""

    query: str
    k: int
    within: PageFilter | None = None

    @property
    def candidates(self) -> int:
        """Pages that the query runs over."""
        return self.k


@dataclass(frozen=True, slots=True, eq=False)
class RankWork:
    """Rank the documents of a request."""

    query: str
    candidates: int
    """Documents that the query runs over."""
    prepare: Callable[[Callable[[], None]], PreparedDocuments]
    """Makes candidates of the documents. It calls its argument between steps, which raises where the caller
    has left."""


@dataclass(frozen=True, slots=True, eq=False)
class ExplainWork:
    """Explain one page."""

    query: str
    explain: Callable[[], Explanation]
    candidates: int = 1


Work: TypeAlias = SearchWork | RankWork | ExplainWork


@dataclass(frozen=True, slots=True, eq=False)
class RankingResult:
    """The ranking that a `SearchWork` or a `RankWork` came to."""

    queue_ms: float
    batch_jobs: int
    """Jobs that the thread took together with this one, this one included."""
    ranking: Ranking
    candidates: CandidateList
    document_page_ids: tuple[str, ...]
    """Of a `RankWork`, the page of each document, in the order of the request."""


JobResult: TypeAlias = RankingResult | Explanation


@dataclass(slots=True, eq=False)
class Job:
    """Work on its way through the queue."""

    work: Work
    request: object
    """What the jobs of one request share."""
    pair_tokens: int = 0
    """Query tokens times candidates."""
    result: Future[JobResult] = field(default_factory=Future)
    admitted_at: float = field(default_factory=time.perf_counter)
    queue_ms: float = 0.0
    abandoned: bool = False
    """Whether the caller has left."""

    def check_caller(self) -> None:
        """Raise where the caller has left."""
        if self.abandoned:
            raise CallerLeftError

    def fail(self, error: Exception) -> None:
        """End with an error, unless there is a result already."""
        if not self.result.done():
            self.result.set_exception(error)
