"""One opened server: reranker, queue, page images and metrics, and how a request waits for its result."""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath
from threading import Lock
from typing import Any

from fastapi import Request

from ridgerank.calibration.artifact import DEFAULT_NAME
from ridgerank.errors import RidgeRankError
from ridgerank.records import Explanation
from ridgerank.reranker.candidates import drop_low_scores, require_min_score
from ridgerank.reranker.reranker import Reranker
from ridgerank.serving import http_errors
from ridgerank.serving.engine import CallerLeftError, Engine, RankingResult, Work
from ridgerank.serving.http_errors import ApiError
from ridgerank.serving.images import ImageDecoder, PageImages
from ridgerank.serving.judging import Judging
from ridgerank.serving.logs import QueryLog
from ridgerank.serving.metrics import Metrics
from ridgerank.serving.settings import ServeSettings
from ridgerank.store.page_filter import PageFilter

log = logging.getLogger(__name__)

PROBE_SECONDS = 5.0
"""Readiness reads the store at most this often, unless a request has failed meanwhile."""


class Service:
    """Everything the routes share; `close` lets the admitted requests finish."""

    def __init__(self, reranker: Reranker, settings: ServeSettings, *, readout: str = DEFAULT_NAME) -> None:
        self.reranker = reranker
        self.settings = settings
        self.readout = readout
        """The calibration's name."""
        self.model = settings.model_name or f"ridgerank-{base_name(reranker.backbone.name)}"
        self.started = int(time.time())
        self.retriever = _retriever_name(reranker)
        """None if there is none to search with."""
        self.judging = Judging(reranker) if settings.judge else None
        """None if callers may not judge pages."""
        self._queries = None if settings.query_log is None else QueryLog(settings.query_log)
        self.engine = Engine(reranker, settings.limits)
        self.metrics = Metrics(self.engine, reranker)
        self.page_images = PageImages(reranker.store, settings.limits)
        self.image_decoder = ImageDecoder(settings.limits, max_pixels=reranker.backbone.page_budget)
        self._probing = Lock()
        self._probed_at: float | None = None
        self._readable = False
        self._told_of_changes = False

    def search_work(self, query: str, k: int, within: PageFilter | None = None) -> Work:
        """Retrieve `k` pages and rank them. Alone: a retriever sums in another order for several queries."""
        return Work(query, k, lambda _: self.reranker.retrieve([query], k=k, within=within)[0])

    async def rank(
        self,
        request: Request,
        works: Sequence[Work],
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
            if self._queries is not None:
                self._queries.record(result.ranking.query)
        return [replace(result, ranking=drop_low_scores(result.ranking, min_score)) for result in rankings]

    async def explain(
        self, request: Request, query: str, page_id: str, *, layer: int | None, deadline_ms: int | None
    ) -> Explanation:
        """Wait for an explanation of one page, at most until the request's deadline."""
        work = Work(query, 1, lambda _: self.reranker.explain(query, page_id, layer=layer))
        [result] = await self._run(request, [work], deadline_ms=deadline_ms)
        assert isinstance(result, Explanation)  # what the work makes
        return result

    def require_ready(self) -> None:
        """Raise if the server cannot answer now. It may read the store: call it outside the event loop."""
        if self.engine.closing:
            raise http_errors.shutting_down()
        with self._probing:
            now = time.monotonic()
            if self._probed_at is None or now - self._probed_at > PROBE_SECONDS:
                self._probed_at, self._readable = now, self._probe_store()
        if not self._readable:
            reason = "the page store cannot be read; the server's log says why"
            raise ApiError(503, "not_ready", reason, retry_after=5)

    def close(self, *, seconds: float = 10.0) -> None:
        """Finish what was admitted, within `seconds`, then end all processes and close the store."""
        self.engine.close(seconds=seconds)
        self.end_processes()
        self.page_images.close()
        if self._queries is not None:
            self._queries.close()
        self.metrics.close()
        self.reranker.close()

    def end_processes(self) -> None:
        """End the processes that decode and render, whatever they do."""
        self.image_decoder.close()
        self.page_images.end_process()

    async def _run(
        self, request: Request, works: Sequence[Work], *, deadline_ms: int | None
    ) -> list[RankingResult | Explanation]:
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
            if seconds < limit:
                allowed = f"no answer within the {1000 * seconds:.0f} ms the request allowed"
                raise ApiError(408, "deadline_passed", allowed)
            raise ApiError(
                503, "deadline_passed", f"no answer within {seconds:g} s; try again", retry_after=1
            )
        finally:
            hang_up.cancel()
            if not results.done():
                self.engine.drop(jobs)
                # Fetching the exception keeps asyncio from logging one that nothing waits for.
                results.add_done_callback(lambda done: done.cancelled() or done.exception())
                results.cancel()

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
                f"the query has {max(lengths):,} tokens with its prompt, more than the "
                f"{limits.query_tokens:,} this server runs; shorten it",
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

    def _checked_result(
        self, result: RankingResult | Explanation | BaseException
    ) -> RankingResult | Explanation:
        if isinstance(result, CallerLeftError | asyncio.CancelledError):
            raise http_errors.caller_left()
        if isinstance(result, ApiError):
            raise result
        if isinstance(result, BaseException):
            told = http_errors.from_library_error(result) if isinstance(result, RidgeRankError) else None
            if told is None:
                self._probed_at = None  # the fault is the server's own: readiness reads the store again
            raise told or result from result
        return result

    def _probe_store(self) -> bool:
        """Whether the store can be read."""
        store = self.reranker.store
        try:
            store.probe()
        except (RidgeRankError, OSError) as error:
            log.error("the page store cannot be read: %s", error)
            return False
        if not self._told_of_changes and not store.is_current():
            self._told_of_changes = True
            log.warning(
                "the page store has changed since this server opened it: pages that were removed are still "
                "found, and pages that were added are not; restart the server to serve the store as it is now"
            )
        return True


def base_name(name: str) -> str:
    """The name of a model or folder without the path to it: paths stay on the server."""
    return PurePath(name).name or name


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
