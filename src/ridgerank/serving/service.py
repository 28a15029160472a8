"""One opened server: reranker, queue, pictures and counts, and how a request waits for its turn."""

import asyncio
import logging
import time
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, Self

from fastapi import Request

from ridgerank.calibration.artifact import DEFAULT_NAME
from ridgerank.errors import RidgeRankError
from ridgerank.ranking.reranker import Reranker
from ridgerank.serving import http_errors
from ridgerank.serving.engine import Engine, Gone, Job, Served, Work
from ridgerank.serving.http_errors import Refusal
from ridgerank.serving.model_process import ModelProcess
from ridgerank.serving.page_images import Pictures
from ridgerank.serving.prometheus import Metrics
from ridgerank.serving.relevance import Relevance, relevance_at
from ridgerank.serving.serve_settings import Settings

log = logging.getLogger(__name__)


class Service:
    """Everything the routes share; `close` lets the last requests finish."""

    def __init__(
        self,
        reranker: Reranker,
        settings: Settings,
        *,
        readout: str = DEFAULT_NAME,
        processes: Sequence[ModelProcess] = (),
    ) -> None:
        """Serve a reranker, by threads of this process or by processes that opened the same."""
        self.reranker = reranker
        self.settings = settings
        self.readout = readout
        """The calibration's name."""
        self.model = f"ridgerank-{last_part(reranker.backbone.name)}"
        self.started = int(time.time())
        self.retriever = _retriever_name(reranker)
        """None where there is none to search with."""
        self._processes = processes
        self.engine = Engine(reranker, settings.limits, workers=settings.workers, rankers=processes)
        self.metrics = Metrics(self.engine)
        self.pictures = Pictures(reranker.store, settings.limits)
        self.fused = relevance_at(reranker.calibration, reranker.calibration.weight.weight)
        self.alone = relevance_at(reranker.calibration, 1.0)

    @classmethod
    def open(cls, store: str, settings: Settings, *, readout: str = DEFAULT_NAME) -> Self:
        """Open a calibrated store with its own model: what a process of its own, such as a replica, does."""
        return cls(Reranker.open(store, readout=readout), settings, readout=readout)

    def relevance(self, *, scored: bool) -> Relevance:
        """How fused scores become chances, with retriever scores or without."""
        return self.fused if scored else self.alone

    async def run(self, request: Request, works: Sequence[Work], *, deadline_ms: int | None) -> list[Served]:
        """Wait for all of these, no longer than allowed, and no longer than the caller does."""
        limit = self.settings.limits.deadline_seconds
        own = deadline_ms is not None and deadline_ms / 1000 < limit
        seconds = deadline_ms / 1000 if own and deadline_ms is not None else limit
        jobs = self.engine.submit(works)
        answers = asyncio.gather(*(asyncio.wrap_future(job.answer) for job in jobs), return_exceptions=True)
        leaving = asyncio.ensure_future(_left(request))
        either: set[asyncio.Future[Any]] = {answers, leaving}
        try:
            await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if answers.done():
                return self._served(answers.result())
            if leaving.done():
                self.metrics.left()
                raise Refusal(499, "left", "the caller hung up")
            raise http_errors.too_late(seconds, own=own)
        finally:
            leaving.cancel()
            self._forget(jobs, answers)

    def close(self) -> None:
        """Finish what was admitted, then close the store."""
        self.engine.close()
        for one in self._processes:
            one.close()
        self.pictures.close()
        self.reranker.close()

    def _forget(self, jobs: Sequence[Job], answers: "asyncio.Future[list[Served | BaseException]]") -> None:
        if not answers.done():
            self.engine.drop(jobs)
            answers.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody will look
            answers.cancel()

    def _served(self, found: Sequence[Served | BaseException]) -> list[Served]:
        served = []
        for one in found:
            if isinstance(one, RidgeRankError):
                raise http_errors.refusal_of(one, store_uri=self.reranker.store.uri) from one
            if isinstance(one, Gone | asyncio.CancelledError):
                raise Refusal(499, "left", "the caller hung up")
            if isinstance(one, BaseException):
                raise one
            self.metrics.ranked(one)
            served.append(one)
        return served


def last_part(name: str) -> str:
    """The name of a model or folder without the path to it: where things lie stays on the server."""
    return PurePath(name).name or name


async def _left(request: Request) -> None:
    """Return when the caller hangs up; the body has been read, so nothing else can come."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _retriever_name(reranker: Reranker) -> str | None:
    try:
        return reranker.retriever.name
    except RidgeRankError as error:
        log.warning("no retriever: %s; requests must bring candidates, with scores or without", error)
        return None
