"""The queue before the model: bounded, and shared by all requests and stores of a process.

One thread runs the model. It takes the jobs that wait and ranks them together; lists of one shape share
passes (`Reranker.rank_lists`), but on a CPU, where that saves nothing, it takes one job at a time. No job is
held back to fill a batch. An error belongs to its job: if a shared pass fails, its jobs run one by one. The
work of a caller who has left is dropped. A request that brings an order of its own is refused at once where
the model would be late for it: what runs then is in time.
"""

import logging
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Condition, Thread

import torch

from ridgerank.errors import RidgeRankError
from ridgerank.records import Explanation, Ranking
from ridgerank.reranker.candidates import CandidateList
from ridgerank.reranker.reranker import Reranker
from ridgerank.serving import http_errors
from ridgerank.serving.http_errors import ApiError
from ridgerank.serving.settings import Limits

log = logging.getLogger(__name__)

HEAVY_TOKENS = 16_384
"""Query tokens times candidates from which a job is ranked alone, after the others of its batch."""


class CallerLeftError(ApiError):
    """The caller hung up, so the work is dropped; no client sees this, logs and metrics do."""

    def __init__(self) -> None:
        super().__init__(499, "left", "the caller hung up")


@dataclass(frozen=True, slots=True, eq=False)
class RankingResult:
    """The ranking of one list."""

    queue_ms: float
    batch_jobs: int
    ranking: Ranking
    candidates: CandidateList


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """A query over some pages of one state of a store."""

    reranker: Reranker
    query: str
    candidates: int
    """Pages that the query runs over."""
    prepare: Callable[[Callable[[], None]], CandidateList | Explanation]
    """Makes the list to rank, or an explanation, which is then the result. It calls its argument between
    steps, which raises if the caller has left."""
    order: RankingResult | None = None
    """The order without the model, if there is one."""
    began: float = field(default_factory=time.monotonic)


@dataclass(slots=True, eq=False)
class Job:
    """Work on its way through the queue."""

    work: Work
    request: object
    pair_tokens: int = 0
    """Query tokens times candidates."""
    result: Future[RankingResult | Explanation] = field(default_factory=Future)
    admitted_at: float = field(default_factory=time.perf_counter)
    queue_ms: float = 0.0
    abandoned: bool = False

    def check_caller(self) -> None:
        """Raise if the caller has left."""
        if self.abandoned:
            raise CallerLeftError

    def fail(self, error: Exception) -> None:
        """End with an error, unless there is a result already."""
        if not self.result.done():
            self.result.set_exception(error)


class Engine:
    """Runs one model for many callers; `close` lets the admitted jobs finish."""

    def __init__(self, limits: Limits, *, shares: bool) -> None:
        self.limits = limits
        self.batch_jobs = limits.batch_jobs if shares else 1
        self._waiting: deque[Job] = deque()
        self._running: Sequence[Job] = ()
        self._page_seconds = 0.0
        """What a candidate takes, averaged over the last batches."""
        self._requests: Counter[object] = Counter()
        """Request → its jobs that wait or are being worked on."""
        self._changed = Condition()
        self.closing = False
        self._thread = Thread(target=self._run, name="ridgerank-model", daemon=True)
        self._thread.start()

    @property
    def admitted(self) -> int:
        """Requests waiting or being worked on."""
        return len(self._requests)

    def require_room(self) -> None:
        """Raise if one more request would not be admitted."""
        if self.closing:
            raise http_errors.shutting_down()
        if self.admitted >= self.limits.admitted:
            message = f"{self.admitted} requests are being worked on, all this server takes; try again"
            raise ApiError(429, "overloaded", message, retry_after=1)

    def submit(
        self, works: Sequence[Work], pair_tokens: Sequence[int] = (), *, seconds: float = math.inf
    ) -> list[Job]:
        """Admit the works of one request, or refuse all of them; `pair_tokens` says how much each takes.

        If each has an order without the model, they are refused unless the model is free or should have done
        them well within `seconds`.
        """
        request = object()
        sizes = pair_tokens or [0] * len(works)
        with self._changed:
            self.require_room()
            if self._requests and all(work.order is not None for work in works):
                ahead = [job.work for job in (*self._running, *self._waiting)]
                needed = self._page_seconds * sum(work.candidates for work in (*ahead, *works))
                if 1.5 * needed > seconds:  # what comes too late was computed in vain
                    busy = f"the model is busy for about {needed:.1f} s and may be late for this request"
                    raise ApiError(429, "overloaded", busy, retry_after=1)
            jobs = [Job(work, request, size) for work, size in zip(works, sizes, strict=True)]
            self._waiting += jobs
            self._requests[request] += len(jobs)
            self._changed.notify()
        return jobs

    def drop(self, jobs: Sequence[Job]) -> None:
        """Drop jobs whose caller has left: a waiting job at once, a running one at its next step."""
        with self._changed:
            for job in jobs:
                job.abandoned = True
                if job in self._waiting:
                    self._waiting.remove(job)
                    self._finish([job])
                    job.result.cancel()

    def close(self, *, seconds: float = 10.0) -> None:
        """Refuse new jobs and wait for the admitted ones; those still waiting after `seconds` fail."""
        with self._changed:
            self.closing = True
            self._changed.notify()
        self._thread.join(seconds)
        with self._changed:
            for job in self._waiting:
                job.fail(http_errors.shutting_down())
            self._finish(self._waiting)
            self._waiting.clear()

    def _finish(self, jobs: Iterable[Job]) -> None:
        """Count jobs as done; call it while `_changed` is held."""
        for job in jobs:
            self._requests[job.request] -= 1
            if not self._requests[job.request]:
                del self._requests[job.request]

    def _run(self) -> None:
        # OpenMP counts threads for each thread that calls it: without this the thread takes all cores.
        torch.set_num_threads(torch.get_num_threads())
        while jobs := self._take_batch():
            start = time.perf_counter()
            try:
                self._run_batch(jobs)
            finally:
                with self._changed:
                    self._running = ()
                    self._finish(jobs)
            if not any(job.abandoned for job in jobs):
                last = (time.perf_counter() - start) / max(1, sum(job.work.candidates for job in jobs))
                self._page_seconds += (last - self._page_seconds) * (0.2 if self._page_seconds else 1.0)

    def _take_batch(self) -> list[Job]:
        """Wait for jobs and take them; none once the engine closes and the queue is empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self.closing)
            count = min(len(self._waiting), self.batch_jobs)
            self._running = jobs = [self._waiting.popleft() for _ in range(count)]
        now = time.perf_counter()
        for job in jobs:
            job.queue_ms = 1000 * (now - job.admitted_at)
            job.result.set_running_or_notify_cancel()
        return jobs

    def _run_batch(self, jobs: Sequence[Job]) -> None:
        lists: list[tuple[Job, CandidateList]] = []
        for job in jobs:
            with _errors_to(job):
                job.check_caller()
                prepared = job.work.prepare(job.check_caller)
                if isinstance(prepared, CandidateList):
                    lists.append((job, prepared))
                else:
                    job.result.set_result(prepared)
        alone: list[tuple[Job, CandidateList]] = []
        light: dict[Reranker, list[tuple[Job, CandidateList]]] = {}
        for pair in lists:
            heavy = pair[0].pair_tokens >= HEAVY_TOKENS
            (alone if heavy else light.setdefault(pair[0].work.reranker, [])).append(pair)
        for together in light.values():
            try:
                self._rank(together, batch_jobs=len(jobs))
            except Exception:
                # The error is that of one of them, or of the pass they share: alone, each gets its own.
                alone += together
        for pair in alone:
            with _errors_to(pair[0]):
                self._rank([pair], batch_jobs=1)
        for job in jobs:
            job.fail(CallerLeftError())  # nothing happens to a job that is done

    def _rank(self, prepared: Sequence[tuple[Job, CandidateList]], *, batch_jobs: int) -> None:
        """Rank lists together; stop if all callers have left."""
        awaited = [pair for pair in prepared if not pair[0].abandoned]
        if not awaited:
            return

        def check_callers() -> None:
            if all(job.abandoned for job, _ in awaited):
                raise CallerLeftError

        reranker = awaited[0][0].work.reranker
        rankings = reranker.rank_lists([lists for _, lists in awaited], before_pass=check_callers)
        for (job, candidates), ranking in zip(awaited, rankings, strict=True):
            job.result.set_result(RankingResult(job.queue_ms, batch_jobs, ranking, candidates))


@contextmanager
def _errors_to(job: Job) -> Iterator[None]:
    """Errors in this context are the job's; those that no request can cause are logged, too."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, RidgeRankError | ApiError):
            log.exception("a request failed")
        job.fail(error)
