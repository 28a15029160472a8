"""The queue in front of the model: bounded, shared, and forgetful of callers who have left.

A few threads own the model, or each talks to a process that does (`model_process.py`). Each takes what is
waiting, up to its share, and runs lists of one shape in shared passes (`Reranker.rank_lists`). No request
is held back to fill a batch: requests gather while the model is busy.
This module knows no HTTP.
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
from ridgerank.ranking.reranker import Reranker
from ridgerank.records import Explanation, Ranking
from ridgerank.serving import http_errors
from ridgerank.serving.http_errors import Refusal
from ridgerank.serving.serve_settings import Limits
from ridgerank.store.cache import CacheCounts

log = logging.getLogger(__name__)


class Gone(Exception):  # noqa: N818 (reads as the fact it states)
    """The caller has left, so the work is dropped."""


@dataclass(frozen=True, slots=True)
class Search:
    """Retrieve `k` pages and rank them."""

    query: str
    k: int


@dataclass(frozen=True, slots=True, eq=False)
class Rank:
    """Rank what `prepare` finds; it may call its argument to learn whether to go on (else: `Gone`)."""

    prepare: Callable[[Callable[[], None]], CandidateList]


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """Anything else that needs the model."""

    run: Callable[[], Explanation]


Work: TypeAlias = Search | Rank | Call


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """What came of a piece of work."""

    queue_ms: float
    shared_with: int
    """Requests taken together with this one, itself included."""
    ranking: Ranking | None = None
    prepared: CandidateList | None = None
    explanation: Explanation | None = None


@dataclass(slots=True, eq=False)
class Job:
    """Work on its way through the queue."""

    work: Work
    answer: Future[Served] = field(default_factory=Future)
    admitted: float = field(default_factory=time.perf_counter)
    queue_ms: float = 0.0
    gone: bool = False

    def go_on(self) -> None:
        """Raise where nobody waits for this any more."""
        if self.gone:
            raise Gone


class Ranker(Protocol):
    """What a worker needs of a reranker, here or in another process."""

    def retrieve(self, queries: Sequence[str], *, k: int) -> list[CandidateList]:
        """Candidates of each query."""

    def rank_lists(self, prepared: Sequence[CandidateList]) -> list[Ranking]:
        """Rank each list."""

    def cache_counts(self) -> CacheCounts:
        """How the cache of pages has fared."""


class Engine:
    """Runs a reranker for many callers; close it to let the last ones finish."""

    def __init__(
        self, reranker: Reranker, limits: Limits, *, workers: int = 1, rankers: Sequence[Ranker] = ()
    ) -> None:
        """With `rankers` each has a worker of its own; without, the workers share the reranker."""
        self.reranker = reranker
        self._rankers = rankers
        self.limits = limits
        self._waiting: deque[Job] = deque()
        self._running = 0
        self._changed = Condition()
        self._closing = False
        self._seconds_each = 0.1
        """A running mean of what a request takes: what Retry-After is made of."""
        self._workers = [
            Thread(target=self._work, args=(ranker,), name=f"ridgerank-model-{number}", daemon=True)
            for number, ranker in enumerate(rankers or [reranker] * workers)
        ]
        for worker in self._workers:
            worker.start()

    @property
    def admitted(self) -> int:
        """Requests waiting or being worked on."""
        return len(self._waiting) + self._running

    @property
    def closing(self) -> bool:
        """Whether nothing new is taken."""
        return self._closing

    def cache_counts(self) -> CacheCounts:
        """How the caches of pages have fared, all workers' together."""
        counts = [one.cache_counts() for one in (self.reranker, *self._rankers)]
        return CacheCounts(
            hits=sum(one.hits for one in counts),
            misses=sum(one.misses for one in counts),
            pages=sum(one.pages for one in counts),
            nbytes=sum(one.nbytes for one in counts),
        )

    def require_room(self, count: int = 1) -> None:
        """Refuse, before anything is read, what would not be admitted."""
        if self._closing:
            raise http_errors.closing()
        if self.admitted + count > self.limits.admitted:
            raise http_errors.overloaded(self.admitted, self.retry_after())

    def retry_after(self) -> int:
        """Seconds until half of what is there now should be done; at least one."""
        return max(1, math.ceil(0.5 * self.admitted * self._seconds_each / len(self._workers)))

    def submit(self, works: Sequence[Work]) -> list[Job]:
        """Admit all of these, or refuse all."""
        with self._changed:
            self.require_room(len(works))
            jobs = [Job(work) for work in works]
            self._waiting += jobs
            self._changed.notify(len(jobs))
        return jobs

    def drop(self, jobs: Sequence[Job]) -> None:
        """Forget jobs nobody waits for: those waiting at once, those running at their next step."""
        with self._changed:
            for job in jobs:
                job.gone = True
                if job in self._waiting:
                    self._waiting.remove(job)
                    job.answer.cancel()

    def close(self, *, seconds: float = 10.0) -> None:
        """Take nothing new, finish what was admitted, as far as that is done in time."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        end = time.perf_counter() + seconds
        for worker in self._workers:
            worker.join(max(0.0, end - time.perf_counter()))
        with self._changed:
            for job in self._waiting:
                job.answer.set_exception(http_errors.closing())
            self._waiting.clear()

    def _work(self, ranker: Ranker) -> None:
        # OpenMP counts threads for each thread that calls it: without this every worker takes all cores.
        torch.set_num_threads(torch.get_num_threads())
        while jobs := self._take():
            start = time.perf_counter()
            try:
                self._serve(jobs, ranker)
            except Exception as error:
                log.exception("a batch of %d requests failed", len(jobs))
                for job in jobs:
                    _fail(job, error)
            finally:
                with self._changed:
                    self._running -= len(jobs)
                each = (time.perf_counter() - start) / len(jobs)
                self._seconds_each += 0.1 * (each - self._seconds_each)

    def _take(self) -> list[Job]:
        """Take a worker's share of what is waiting; nothing once the server closes and the queue is empty."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            share = math.ceil(len(self._waiting) / len(self._workers))
            jobs = [self._waiting.popleft() for _ in range(min(share, self.limits.together))]
            self._running += len(jobs)
        now = time.perf_counter()
        for job in jobs:
            job.queue_ms = 1000 * (now - job.admitted)
            job.answer.set_running_or_notify_cancel()
        return jobs

    def _serve(self, jobs: Sequence[Job], ranker: Ranker) -> None:
        prepared = [(job, asked) for job, asked in self._prepared(jobs, ranker) if not job.gone]
        rankings = ranker.rank_lists([asked for _, asked in prepared])
        for (job, asked), ranking in zip(prepared, rankings, strict=True):
            job.answer.set_result(Served(job.queue_ms, len(jobs), ranking, asked))
        for job in jobs:
            if job.gone and not job.answer.done():
                _fail(job, Gone())

    def _prepared(self, jobs: Sequence[Job], ranker: Ranker) -> list[tuple[Job, CandidateList]]:
        """What each needs before the model runs; one that fails does not spoil the others."""
        found: list[tuple[Job, CandidateList]] = []
        for job in jobs:
            try:
                job.go_on()
                if isinstance(job.work, Search):
                    # One by one: a retriever's products are summed in another order for several queries.
                    found += [(job, one) for one in ranker.retrieve([job.work.query], k=job.work.k)]
                elif isinstance(job.work, Rank):
                    found.append((job, job.work.prepare(job.go_on)))
                else:
                    job.answer.set_result(Served(job.queue_ms, len(jobs), explanation=job.work.run()))
            except (RidgeRankError, Refusal, Gone) as error:
                _fail(job, error)
        return found


def _fail(job: Job, error: Exception) -> None:
    if not job.answer.done():
        job.answer.set_exception(error)
