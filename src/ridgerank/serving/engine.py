"""The queue in front of the model: bounded, and shared by all requests.

Each ranker has a thread of its own: a reranker of this process, or a process that holds one
(`model_process.py`). A thread takes its share of the jobs that wait and ranks them together; lists of one
shape share passes (`Reranker.rank_lists`). No job is held back to fill a batch: jobs gather while the
model is busy. The work of a caller who has left is dropped. This module knows no HTTP beyond its errors.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Protocol, TypeAlias

import torch

from ridgerank.errors import RidgeRankError
from ridgerank.ranking.candidates import CandidateList
from ridgerank.records import Explanation, Ranking
from ridgerank.serving import http_errors
from ridgerank.serving.http_errors import ApiError
from ridgerank.serving.serve_settings import Limits
from ridgerank.store.cache import CacheCounts

log = logging.getLogger(__name__)


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


@dataclass(frozen=True, slots=True, eq=False)
class RankWork:
    """Rank the documents of a request."""

    prepare: Callable[[Callable[[], None]], PreparedDocuments]
    """Makes candidates of the documents. It calls its argument between steps, which raises where the caller
    has left."""


@dataclass(frozen=True, slots=True, eq=False)
class ExplainWork:
    """Explain one page."""

    explain: Callable[[], Explanation]


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


class Ranker(Protocol):
    """What a thread needs of a reranker, here or in another process."""

    def retrieve(self, queries: Sequence[str], *, k: int) -> list[CandidateList]:
        """The candidates of each query."""

    def rank_lists(self, lists: Sequence[CandidateList]) -> list[Ranking]:
        """Rank each list."""

    def cache_counts(self) -> CacheCounts:
        """Hits, misses and size of the page cache."""


class Engine:
    """Runs rankers for many callers, each in a thread; `close` lets the admitted jobs finish."""

    def __init__(self, rankers: Sequence[Ranker], limits: Limits) -> None:
        """Start a thread per ranker; a reranker given several times is shared by as many threads."""
        self.limits = limits
        self._waiting: deque[Job] = deque()
        self._running = 0
        self._changed = Condition()
        self._closing = False
        self._seconds_per_job = 0.1
        """A running mean; `retry_after` is computed from it."""
        self._threads = [
            Thread(target=self._work, args=(ranker,), name=f"ridgerank-model-{number}", daemon=True)
            for number, ranker in enumerate(rankers)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def admitted(self) -> int:
        """Jobs waiting or being worked on."""
        return len(self._waiting) + self._running

    @property
    def closing(self) -> bool:
        """Whether new jobs are refused because the engine closes."""
        return self._closing

    def require_room(self, count: int = 1) -> None:
        """Raise where `count` more jobs would not be admitted."""
        if self._closing:
            raise http_errors.shutting_down()
        if self.admitted + count > self.limits.admitted:
            raise http_errors.overloaded(self.admitted, self.retry_after())

    def retry_after(self) -> int:
        """Seconds until half of the admitted jobs should be done; at least one."""
        return max(1, math.ceil(0.5 * self.admitted * self._seconds_per_job / len(self._threads)))

    def submit(self, works: Sequence[Work]) -> list[Job]:
        """Admit all of these, or refuse all."""
        with self._changed:
            self.require_room(len(works))
            jobs = [Job(work) for work in works]
            self._waiting += jobs
            self._changed.notify(len(jobs))
        return jobs

    def drop(self, jobs: Sequence[Job]) -> None:
        """Drop jobs whose caller has left: a waiting job at once, a running one at its next step."""
        with self._changed:
            for job in jobs:
                job.abandoned = True
                if job in self._waiting:
                    self._waiting.remove(job)
                    job.result.cancel()

    def close(self, *, seconds: float = 10.0) -> None:
        """Refuse new jobs and wait for the admitted ones; those still waiting after `seconds` fail."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        end = time.perf_counter() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.perf_counter()))
        with self._changed:
            for job in self._waiting:
                job.fail(http_errors.shutting_down())
            self._waiting.clear()

    def _work(self, ranker: Ranker) -> None:
        # OpenMP counts threads for each thread that calls it: without this every worker takes all cores.
        torch.set_num_threads(torch.get_num_threads())
        while jobs := self._take_batch():
            start = time.perf_counter()
            try:
                self._run_batch(jobs, ranker)
            except Exception as error:
                log.exception("a batch of %d requests failed", len(jobs))
                for job in jobs:
                    job.fail(error)
            finally:
                with self._changed:
                    self._running -= len(jobs)
                seconds_per_job = (time.perf_counter() - start) / len(jobs)
                self._seconds_per_job += 0.1 * (seconds_per_job - self._seconds_per_job)

    def _take_batch(self) -> list[Job]:
        """Take one thread's share of the waiting jobs; none once the engine closes and the queue is empty."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            share = math.ceil(len(self._waiting) / len(self._threads))
            jobs = [self._waiting.popleft() for _ in range(min(share, self.limits.batch_jobs))]
            self._running += len(jobs)
        now = time.perf_counter()
        for job in jobs:
            job.queue_ms = 1000 * (now - job.admitted_at)
            job.result.set_running_or_notify_cancel()
        return jobs

    def _run_batch(self, jobs: Sequence[Job], ranker: Ranker) -> None:
        prepared = [pair for pair in self._prepare_batch(jobs, ranker) if not pair[0].abandoned]
        rankings = ranker.rank_lists([documents.candidates for _, documents in prepared])
        for (job, documents), ranking in zip(prepared, rankings, strict=True):
            job.result.set_result(
                RankingResult(job.queue_ms, len(jobs), ranking, documents.candidates, documents.page_ids)
            )
        for job in jobs:
            if job.abandoned:
                job.fail(CallerLeftError())

    def _prepare_batch(self, jobs: Sequence[Job], ranker: Ranker) -> list[tuple[Job, PreparedDocuments]]:
        """The candidates of each job; a job that fails does not spoil the others."""
        prepared: list[tuple[Job, PreparedDocuments]] = []
        for job in jobs:
            try:
                job.check_caller()
                if isinstance(job.work, SearchWork):
                    # One by one: a retriever's products are summed in another order for several queries.
                    [candidates] = ranker.retrieve([job.work.query], k=job.work.k)
                    prepared.append((job, PreparedDocuments(candidates, ())))
                elif isinstance(job.work, RankWork):
                    prepared.append((job, job.work.prepare(job.check_caller)))
                else:
                    job.result.set_result(job.work.explain())
            except (RidgeRankError, ApiError, CallerLeftError) as error:
                job.fail(error)
        return prepared
