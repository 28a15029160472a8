"""The queue in front of the model: bounded, and shared by all requests.

Each ranker has a thread of its own: a reranker of this process, or a process that holds one
(`model_process.py`). A thread takes its share of the jobs that wait and ranks them together; lists of one
shape share passes (`Reranker.rank_lists`). No job is held back to fill a batch: jobs gather while the
model is busy. An error belongs to its job: where a shared pass fails, its jobs run one by one. The work of a
caller who has left is dropped. This module knows no HTTP beyond its errors.
"""

import logging
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from threading import Condition, Thread
from typing import Protocol, TypeAlias

import torch

from ridgerank.byte_lru import CacheCounts
from ridgerank.errors import RidgeRankError
from ridgerank.records import Ranking
from ridgerank.reranker.candidates import CandidateList
from ridgerank.serving import http_errors
from ridgerank.serving.http_errors import ApiError
from ridgerank.serving.jobs import (
    CallerLeftError,
    Job,
    PreparedDocuments,
    RankingResult,
    RankWork,
    SearchWork,
    Work,
)
from ridgerank.serving.serve_settings import Limits
from ridgerank.store.page_filter import PageFilter
from ridgerank.worker_process import WorkerDied

log = logging.getLogger(__name__)

HEAVY_TOKENS = 16_384
"""Query tokens times candidates from which a job is ranked alone, after the others of its batch."""
_READY_SECONDS = 0.25
"""How often a thread looks whether its ranker is ready again."""


_PreparedJob: TypeAlias = tuple[Job, PreparedDocuments]


class Ranker(Protocol):
    """What a thread needs of a reranker, here or in another process."""

    def retrieve(
        self, queries: Sequence[str], *, k: int, within: PageFilter | None = None
    ) -> list[CandidateList]:
        """The candidates of each query."""

    def rank_lists(self, lists: Sequence[CandidateList], *, before_pass: Callable[[], None]) -> list[Ranking]:
        """Rank each list; what `before_pass` raises ends the work."""

    def cache_counts(self) -> CacheCounts:
        """Hits, misses and size of the page cache."""


class Engine:
    """Runs rankers for many callers, each in a thread; `close` lets the admitted jobs finish."""

    def __init__(self, rankers: Sequence[Ranker], limits: Limits) -> None:
        """Start a thread per ranker; a reranker given several times is shared by as many threads."""
        self.limits = limits
        self._waiting: deque[Job] = deque()
        self._requests: Counter[object] = Counter()
        """Request → its jobs that wait or are being worked on."""
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
        """Requests waiting or being worked on."""
        return len(self._requests)

    @property
    def closing(self) -> bool:
        """Whether new jobs are refused because the engine closes."""
        return self._closing

    def require_room(self) -> None:
        """Raise where one more request would not be admitted."""
        if self._closing:
            raise http_errors.shutting_down()
        if self.admitted >= self.limits.admitted:
            raise http_errors.overloaded(self.admitted, self.retry_after())

    def retry_after(self) -> int:
        """Seconds until half of the admitted requests should be done; at least one."""
        return max(1, math.ceil(0.5 * self.admitted * self._seconds_per_job / len(self._threads)))

    def submit(self, works: Sequence[Work], pair_tokens: Sequence[int] = ()) -> list[Job]:
        """Admit the works of one request, or refuse all of them; `pair_tokens` says how much each takes."""
        request = object()
        sizes = pair_tokens or [0] * len(works)
        with self._changed:
            self.require_room()
            jobs = [Job(work, request, size) for work, size in zip(works, sizes, strict=True)]
            self._waiting += jobs
            self._requests[request] += len(jobs)
            self._changed.notify(len(jobs))
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

    def begin_close(self) -> None:
        """Refuse new jobs."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def close(self, *, seconds: float = 10.0) -> None:
        """Refuse new jobs and wait for the admitted ones; those still waiting after `seconds` fail."""
        self.begin_close()
        end = time.perf_counter() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.perf_counter()))
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

    def _work(self, ranker: Ranker) -> None:
        # OpenMP counts threads for each thread that calls it: without this every worker takes all cores.
        torch.set_num_threads(torch.get_num_threads())
        while jobs := self._take_batch(ranker):
            start = time.perf_counter()
            try:
                self._run_batch(jobs, ranker)
            finally:
                with self._changed:
                    self._finish(jobs)
                seconds_per_job = (time.perf_counter() - start) / len(jobs)
                self._seconds_per_job += 0.1 * (seconds_per_job - self._seconds_per_job)

    def _take_batch(self, ranker: Ranker) -> list[Job]:
        """Take one thread's share of the waiting jobs; none once the engine closes and the queue is empty."""
        with self._changed:
            while not self._waiting or not getattr(ranker, "ready", True):
                if self._closing:
                    return []
                # A ranker that is being replaced takes nothing: another may be free.
                self._changed.wait(None if not self._waiting else _READY_SECONDS)
            share = math.ceil(len(self._waiting) / len(self._threads))
            jobs = [self._waiting.popleft() for _ in range(min(share, self.limits.batch_jobs))]
        now = time.perf_counter()
        for job in jobs:
            job.queue_ms = 1000 * (now - job.admitted_at)
            job.result.set_running_or_notify_cancel()
        return jobs

    def _run_batch(self, jobs: Sequence[Job], ranker: Ranker) -> None:
        prepared: list[_PreparedJob] = []
        for job in jobs:
            _attempt(job, lambda job=job: prepared.extend(_prepare(job, ranker)))  # type: ignore[misc]
        awaited = [pair for pair in prepared if not pair[0].abandoned]
        light = [pair for pair in awaited if pair[0].pair_tokens < HEAVY_TOKENS]
        alone = [pair for pair in awaited if pair[0].pair_tokens >= HEAVY_TOKENS]
        try:
            _rank(light, ranker, batch_jobs=len(jobs))
        except Exception:
            # The error is that of one of them, or of the pass they share: alone, each gets its own.
            alone = light + alone
        for pair in alone:
            _attempt(pair[0], lambda pair=pair: _rank([pair], ranker, batch_jobs=1))  # type: ignore[misc]
        for job in jobs:
            job.fail(CallerLeftError())  # nothing happens to a job that is done


def _prepare(job: Job, ranker: Ranker) -> list[_PreparedJob]:
    """The candidates of a job; nothing where the job is done without a ranking."""
    if isinstance(job.work, SearchWork):
        # One by one: a retriever's products are summed in another order for several queries.
        [candidates] = ranker.retrieve([job.work.query], k=job.work.k, within=job.work.within)
        return [(job, PreparedDocuments(candidates, ()))]
    if isinstance(job.work, RankWork):
        return [(job, job.work.prepare(job.check_caller))]
    job.result.set_result(job.work.explain())
    return []


def _rank(prepared: Sequence[_PreparedJob], ranker: Ranker, *, batch_jobs: int) -> None:
    """Rank the candidates of jobs together; stop where all callers have left."""
    if not prepared:
        return

    def check_callers() -> None:
        if all(job.abandoned for job, _ in prepared):
            raise CallerLeftError

    lists = [documents.candidates for _, documents in prepared]
    rankings = ranker.rank_lists(lists, before_pass=check_callers)
    for (job, documents), ranking in zip(prepared, rankings, strict=True):
        job.result.set_result(
            RankingResult(job.queue_ms, batch_jobs, ranking, documents.candidates, documents.page_ids)
        )


def _attempt(job: Job, work: Callable[[], None]) -> None:
    """Do one job's work; its error is the job's. Work that ended its process is tried once more."""
    try:
        job.check_caller()
        try:
            work()
        except WorkerDied:
            log.warning("a process ended over a request; the request is tried once more")
            job.check_caller()
            work()
    except (RidgeRankError, ApiError, CallerLeftError) as error:
        job.fail(error)
    except Exception as error:
        log.exception("a request failed")
        job.fail(error)
