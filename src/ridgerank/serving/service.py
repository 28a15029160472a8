"""One opened server: reranker, queue, page images and metrics, and how a request waits for its result."""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from fastapi import Request

from ridgerank.byte_lru import CacheCounts
from ridgerank.calibration.artifact import DEFAULT_NAME
from ridgerank.errors import RidgeRankError
from ridgerank.records import Explanation
from ridgerank.reranker.order import drop_low_scores, require_min_score
from ridgerank.reranker.reranker import Reranker
from ridgerank.serving import http_errors
from ridgerank.serving.engine import Engine
from ridgerank.serving.http_errors import ApiError
from ridgerank.serving.image_decoder import ImageDecoder
from ridgerank.serving.jobs import (
    CallerLeftError,
    ExplainWork,
    Job,
    JobResult,
    RankingResult,
    RankWork,
    SearchWork,
    Work,
)
from ridgerank.serving.judging import Judging
from ridgerank.serving.model_process import ModelProcess
from ridgerank.serving.page_images import PageImages
from ridgerank.serving.prometheus import Metrics
from ridgerank.serving.readiness import Readiness
from ridgerank.serving.serve_settings import ServeSettings
from ridgerank.serving.tracing import OpenTelemetryTracing, Tracing
from ridgerank.serving.traffic_log import TrafficLog
from ridgerank.worker_process import WorkerDied

log = logging.getLogger(__name__)


class Service:
    """Everything the routes share; `close` lets the admitted requests finish. `open_service` builds it."""

    def __init__(
        self,
        reranker: Reranker,
        settings: ServeSettings,
        *,
        readout: str = DEFAULT_NAME,
        processes: Sequence[ModelProcess] = (),
    ) -> None:
        """Rank in `processes` that opened the same store, or else in threads that share the reranker."""
        self.reranker = reranker
        self.settings = settings
        self.readout = readout
        """The calibration's name."""
        self.model = settings.model_name or f"ridgerank-{base_name(reranker.backbone.name)}"
        self.tracing = OpenTelemetryTracing() if settings.tracing else Tracing()
        self.started = int(time.time())
        self.retriever = _retriever_name(reranker)
        """None where there is none to search with."""
        self._processes = processes
        self.engine = Engine(processes or [reranker] * (settings.workers or 1), settings.limits)
        self.metrics = Metrics(self.engine, reranker.calibration, self.cache_counts)
        self.page_images = PageImages(reranker.store, settings.limits)
        self.image_decoder = ImageDecoder(settings.limits, max_pixels=reranker.backbone.page_budget)
        self.readiness = Readiness(self.engine, processes, reranker.store)
        self.judging = Judging(reranker) if settings.judge else None
        """None where callers may not judge pages."""
        self._traffic = _open_traffic_log(reranker, settings)

    def cache_counts(self) -> CacheCounts:
        """Hits, misses and sizes of the page caches, of this process and of the others together."""
        counts = [self.reranker.cache_counts(), *(process.cache_counts() for process in self._processes)]
        return CacheCounts(
            hits=sum(count.hits for count in counts),
            misses=sum(count.misses for count in counts),
            pages=sum(count.pages for count in counts),
            nbytes=sum(count.nbytes for count in counts),
        )

    async def rank(
        self,
        request: Request,
        works: Sequence[SearchWork | RankWork],
        *,
        deadline_ms: int | None,
        min_score: float | None = None,
    ) -> list[RankingResult]:
        """Wait for the rankings of a request, at most until its deadline; drop pages below `min_score`."""
        try:
            require_min_score(min_score, self.reranker.calibration)
        except RidgeRankError as error:
            raise http_errors.from_library_error(error) or error from error
        results = await self._run(request, works, deadline_ms=deadline_ms)
        rankings = [result for result in results if isinstance(result, RankingResult)]
        for result in rankings:
            self.metrics.record_ranking(result)
            self.tracing.record_steps(result)
            if self._traffic is not None and result.candidates.scored:
                self._traffic.record(result.ranking)
        return [replace(result, ranking=drop_low_scores(result.ranking, min_score)) for result in rankings]

    async def explain(self, request: Request, work: ExplainWork, *, deadline_ms: int | None) -> Explanation:
        """Wait for an explanation, until the request's deadline at most."""
        [result] = await self._run(request, [work], deadline_ms=deadline_ms)
        if not isinstance(result, Explanation):
            raise TypeError("an explanation was asked for and none was given")
        return result

    def begin_close(self) -> None:
        """Take nothing new."""
        self.engine.begin_close()

    def close(self, *, seconds: float = 10.0) -> None:
        """Finish what was admitted, within `seconds`, then end all processes and close the store."""
        self.engine.close(seconds=seconds)
        self.end_processes()
        self.page_images.close()
        if self._traffic is not None:
            self._traffic.close()
        self.reranker.close()

    def end_processes(self) -> None:
        """End every process of this server at once, whatever it does."""
        for process in self._processes:
            process.close()
        self.image_decoder.close()
        self.page_images.end_process()

    async def _run(
        self, request: Request, works: Sequence[Work], *, deadline_ms: int | None
    ) -> list[JobResult]:
        """Wait for all of these; stop at the deadline, or when the caller hangs up."""
        limit = self.settings.limits.deadline_seconds
        seconds = limit if deadline_ms is None else min(limit, deadline_ms / 1000)
        sizes = await asyncio.to_thread(self._count_tokens, works)
        jobs = self.engine.submit(works, sizes)
        results = asyncio.gather(*(asyncio.wrap_future(job.result) for job in jobs), return_exceptions=True)
        hang_up = asyncio.ensure_future(_wait_for_hang_up(request))
        events: set[asyncio.Future[Any]] = {results, hang_up}
        try:
            await asyncio.wait(events, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if results.done():
                return [self._checked_result(result) for result in results.result()]
            if hang_up.done():
                self.metrics.record_hang_up()
                raise http_errors.caller_left()
            raise http_errors.deadline_passed(seconds, by_request=seconds < limit)
        finally:
            hang_up.cancel()
            self._abandon(jobs, results)

    def _count_tokens(self, works: Sequence[Work]) -> list[int]:
        """Query tokens times candidates of each work; a request of too many is refused."""
        limits, tokens = self.settings.limits, self.reranker.backbone.tokens
        try:
            lengths = [len(tokens.suffix(work.query)) for work in works]
        except RidgeRankError as error:
            raise http_errors.from_library_error(error) or error from error
        if max(lengths) > limits.query_tokens:
            raise ApiError(
                422,
                "too_much_work",
                f"a query of {max(lengths):,} tokens with its prompt, more than the {limits.query_tokens:,} "
                "this server runs; ask for what matters in it",
            )
        sizes = [length * work.candidates for length, work in zip(lengths, works, strict=True)]
        if sum(sizes) > limits.pair_tokens:
            raise ApiError(
                422,
                "too_much_work",
                f"{sum(sizes):,} query tokens over all candidates, more than the {limits.pair_tokens:,} this "
                "server runs for a request; send a shorter query, or fewer candidates",
            )
        return sizes

    def _abandon(
        self, jobs: Sequence[Job], results: "asyncio.Future[list[JobResult | BaseException]]"
    ) -> None:
        """Drop jobs that are not done."""
        if not results.done():
            self.engine.drop(jobs)
            # Fetching the exception keeps asyncio from logging one that nothing waits for.
            results.add_done_callback(lambda done: done.cancelled() or done.exception())
            results.cancel()

    def _checked_result(self, result: JobResult | BaseException) -> JobResult:
        if isinstance(result, CallerLeftError | asyncio.CancelledError):
            raise http_errors.caller_left()
        if isinstance(result, ApiError):
            raise result
        if isinstance(result, WorkerDied):
            self.readiness.record_fault()
            raise http_errors.not_ready("the process that ran the model ended over this request; try again")
        if isinstance(result, BaseException):
            told = http_errors.from_library_error(result) if isinstance(result, RidgeRankError) else None
            if told is None:
                self.readiness.record_fault()
            raise told or result from result
        return result


def base_name(name: str) -> str:
    """The name of a model or folder without the path to it: paths stay on the server."""
    return PurePath(name).name or name


def _open_traffic_log(reranker: Reranker, settings: ServeSettings) -> TrafficLog | None:
    if settings.traffic_log is None:
        return None
    retriever = reranker.calibration.retriever
    return TrafficLog(settings.traffic_log, retriever=retriever, max_bytes=settings.traffic_bytes)


async def _wait_for_hang_up(request: Request) -> None:
    """Return when the caller hangs up; the body has been read, so nothing else can come."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _retriever_name(reranker: Reranker) -> str | None:
    try:
        return reranker.retriever.name
    except RidgeRankError as error:
        log.warning("no retriever: %s; requests must bring candidates, with scores or without", error)
        return None
