"""One opened server: stores, queue, page images and metrics, and how a request waits for its result."""

import asyncio
import io
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from threading import Event, Lock, Thread
from typing import Any, TypeVar

from fastapi import Request
from PIL import Image

from ridgerank.documents.render import decode_page, draw_page
from ridgerank.errors import DocumentError, RidgeRankError, StoreError
from ridgerank.page_sizing import PixelBudget
from ridgerank.processes import IsolatedProcess, TookTooLong, WorkerDied
from ridgerank.records import Explanation, Page, Ranking
from ridgerank.reranker.candidates import CandidateList, drop_low_scores, require_min_score
from ridgerank.reranker.reranker import Reranker
from ridgerank.serving import http_errors
from ridgerank.serving.engine import CallerLeftError, Engine, RankingResult, Work
from ridgerank.serving.http_errors import ApiError
from ridgerank.serving.logs import QueryLog
from ridgerank.serving.metrics import Metrics
from ridgerank.serving.schemas import RankingModel
from ridgerank.serving.settings import Limits, ServeSettings
from ridgerank.serving.stores import ServedStore, StoreState
from ridgerank.store.page_store import ByteLRU, PageStore
from ridgerank.store.sidecar import recall_sources

log = logging.getLogger(__name__)

PROBE_SECONDS = 5.0
"""Readiness reads the stores at most this often, unless a request has failed meanwhile."""
_IMAGE_PIXELS = 2_000_000
"""Of a page image: enough to read small print."""
_LOOK_SECONDS = 0.5
"""How often stores are asked whether it is time to look for changes."""

Answer = TypeVar("Answer")


class Service:
    """Everything the routes share; `close` lets the admitted requests finish."""

    def __init__(self, stores: Sequence[ServedStore], settings: ServeSettings) -> None:
        """At least one of the stores is open; all share its model."""
        self.stores = {store.name: store for store in stores}
        self.settings = settings
        self._opened = next(store.state.reranker for store in stores if store.is_open)
        self.backbone = self._opened.backbone
        self.model = settings.model_name or f"ridgerank-{base_name(self.backbone.name)}"
        self.started = int(time.time())
        self._queries = None if settings.query_log is None else QueryLog(settings.query_log)
        self.engine = Engine(settings.limits, shares=self.backbone.device.type != "cpu")
        self._retrieval = ThreadPoolExecutor(2, thread_name_prefix="ridgerank-retrieval")
        self.metrics = Metrics(self.engine, self.stores, self._opened.cache_counts)
        self.page_images = PageImages(settings.limits, max_pixels=self.backbone.page_budget)
        self._probing = Lock()
        self._probed_at: float | None = None
        self._readable = False
        self.judging_thread = ThreadPoolExecutor(1, thread_name_prefix="ridgerank-judging")
        self._closed = Event()
        self._refresher = Thread(target=self._refresh_stores, name="ridgerank-refresh", daemon=True)
        self._refresher.start()

    def allowed_stores(self, request: Request) -> list[ServedStore]:
        """The stores that a request's key may use."""
        allowed = request.scope["ridgerank"].allowed
        return [store for name, store in self.stores.items() if allowed is None or name in allowed]

    def find_store(self, request: Request, sent: str | None = None) -> ServedStore:
        """The store that a request names in its path or as `sent`, if its key may use it.

        A store the key may not use is answered like one that does not exist.
        """
        usable = {store.name: store for store in self.allowed_stores(request)}
        in_path = request.scope["ridgerank"].named
        name = in_path or sent or (next(iter(usable)) if len(usable) == 1 else None)
        if name is None:
            message = f"this server has {len(usable)} stores; name one as `store`, or call /stores/NAME/…"
            raise ApiError(422, "store_missing", message)
        if name not in usable or sent not in (None, name):
            unknown = http_errors.shorten_words(sent or name)
            raise ApiError(404, "no_such_store", f"no store {unknown!r} here; see /v1/models")
        return usable[name]

    async def answer(
        self, request: Request, handle: Callable[[StoreState], Awaitable[Answer]], *, store: str | None = None
    ) -> Answer:
        """Answer from one state of the store that a request names.

        If the store cannot be read, for instance because a file of that state is gone, it is opened again and
        the request tried once more.
        """
        served = self.find_store(request, store)
        state = request.scope["ridgerank"].used = served.state
        try:
            return await handle(state)
        except (StoreError, OSError) as error:
            log.warning("store %s: %s; it is opened again", state.name, error)
            await asyncio.to_thread(served.refresh, self._opened, seen=state)
            state = request.scope["ridgerank"].used = served.state
            return await handle(state)

    def degrades(self, body: RankingModel) -> bool:
        """Whether a request wants the order without the model rather than an error."""
        return (body.on_overload or self.settings.on_overload) == "retriever"

    async def prepare_apart(self, work: Work, body: RankingModel) -> Work:
        """The work with its list made in a thread of retrieval, which takes no place in the model's queue."""
        if not self.degrades(body):
            self.engine.require_room()

        def prepare() -> Work:
            found, order = work.prepare(lambda: None), None
            assert isinstance(found, CandidateList)  # only rankings are prepared here
            if self.degrades(body):
                order = order_unread(work.reranker, found)
            return replace(work, prepare=lambda _: found, order=order)

        running = asyncio.get_running_loop().run_in_executor(self._retrieval, prepare)
        try:
            return await asyncio.wait_for(running, self.seconds(body.deadline_ms))
        except TimeoutError:
            raise self._late(body.deadline_ms) from None

    async def rank(
        self, request: Request, state: StoreState, works: Sequence[Work], body: RankingModel
    ) -> list[RankingResult]:
        """Wait for the rankings of a request, at most until its deadline; drop pages below `min_score`.

        A request that wants it gets the order without the model if the model cannot answer.
        """
        require_min_score(body.min_score, state.reranker.calibration)
        try:
            results = await self.run(request, works, deadline_ms=body.deadline_ms)
        except Exception as error:
            reason = _overload(error) if self.degrades(body) else None
            orders = [work.order for work in works if work.order is not None]
            if reason is None:
                raise
            if len(orders) < len(works) or body.min_score is not None:
                if isinstance(error, ApiError):
                    raise
                down = f"{reason}, and there is no order without it; the server's log says why"
                raise ApiError(503, "overloaded", down, retry_after=1) from error
            results = [
                replace(order, ranking=replace(order.ranking, reasons=(reason, *order.ranking.reasons[1:])))
                for order in orders
            ]
        rankings = [result for result in results if isinstance(result, RankingResult)]
        for result in rankings:
            self.metrics.record_ranking(state, result)
            if self._queries is not None:
                self._queries.record(result.ranking.query)
        return [replace(each, ranking=drop_low_scores(each.ranking, body.min_score)) for each in rankings]

    def rank_later(self, work: Work, then: Callable[[Ranking], None]) -> None:
        """Rank when the model has time, for nobody who waits; not at all if the queue is full."""

        def finish(result: "Future[RankingResult | Explanation]") -> None:
            if not result.cancelled() and isinstance(ranked := result.result(), RankingResult):
                then(ranked.ranking)

        with suppress(ApiError):
            [job] = self.engine.submit([work], self._count_tokens([work]))
            job.result.add_done_callback(finish)

    def require_ready(self) -> None:
        """Raise if no store can be read now. It may read the stores: call it outside the event loop."""
        if self.engine.closing:
            raise http_errors.shutting_down()
        with self._probing:
            now = time.monotonic()
            if self._probed_at is None or now - self._probed_at > PROBE_SECONDS:
                self._probed_at = now
                self._readable = any(self._probe(store) for store in self.stores.values())
        if not self._readable:
            reason = "no page store can be read; the server's log says why"
            raise ApiError(503, "not_ready", reason, retry_after=5)

    def close(self, *, seconds: float = 10.0) -> None:
        """Finish what was admitted, within `seconds`, then end all processes and close the stores."""
        self.end_refresh()
        self.engine.close(seconds=seconds)
        self.page_images.close()
        self._retrieval.shutdown(wait=False, cancel_futures=True)
        self.judging_thread.shutdown(wait=False, cancel_futures=True)
        if self._queries is not None:
            self._queries.close()
        self.metrics.close()
        for store in self.stores.values():
            if store.is_open:
                store.state.reranker.close()

    def end_refresh(self) -> None:
        """Take up no more changes of the stores."""
        self._closed.set()
        self._refresher.join(1.0)

    async def run(
        self, request: Request, works: Sequence[Work], *, deadline_ms: int | None
    ) -> list[RankingResult | Explanation]:
        """Wait for all of these; stop at the deadline, or when the caller hangs up."""
        seconds = self.seconds(deadline_ms) - (time.monotonic() - works[0].began)
        sizes = await asyncio.to_thread(self._count_tokens, works)
        jobs = self.engine.submit(works, sizes, seconds=seconds)
        results = asyncio.gather(*(asyncio.wrap_future(job.result) for job in jobs), return_exceptions=True)
        hang_up = asyncio.ensure_future(_wait_for_hang_up(request))
        events: set[asyncio.Future[Any]] = {results, hang_up}
        try:
            await asyncio.wait(events, timeout=max(0.0, seconds), return_when=asyncio.FIRST_COMPLETED)
            if results.done():
                done = results.result()
                if failed := [result for result in done if isinstance(result, BaseException)]:
                    self._probed_at = None  # it may be the server's fault: readiness reads the stores again
                    raise failed[0]
                return [result for result in done if not isinstance(result, BaseException)]
            if hang_up.done():
                self.metrics.hang_ups.inc()
                raise CallerLeftError
            raise self._late(deadline_ms)
        finally:
            hang_up.cancel()
            if not results.done():
                self.engine.drop(jobs)
                # Fetching the exception keeps asyncio from logging one that nothing waits for.
                results.add_done_callback(lambda done: done.cancelled() or done.exception())
                results.cancel()

    def seconds(self, deadline_ms: int | None) -> float:
        """How long a request may take."""
        limit = self.settings.limits.deadline_seconds
        return limit if deadline_ms is None else min(limit, deadline_ms / 1000)

    def _late(self, deadline_ms: int | None) -> ApiError:
        seconds = self.seconds(deadline_ms)
        if seconds < self.settings.limits.deadline_seconds:
            allowed = f"no answer within the {1000 * seconds:.0f} ms the request allowed"
            return ApiError(408, "deadline_passed", allowed)
        late = f"no answer within {seconds:g} s; try again"
        return ApiError(503, "deadline_passed", late, retry_after=1)

    def _count_tokens(self, works: Sequence[Work]) -> list[int]:
        """Query tokens times candidates of each work; a request of too many is refused."""
        limits, tokens = self.settings.limits, self.backbone.tokens
        lengths = [len(tokens.suffix(work.query)) for work in works]
        if max(lengths) > limits.query_tokens:
            found = f"the query has {max(lengths):,} tokens with its prompt"
            most = f"more than the {limits.query_tokens:,} this server runs; shorten it"
            raise ApiError(422, "too_much_work", f"{found}, {most}")
        sizes = [length * work.candidates for length, work in zip(lengths, works, strict=True)]
        if sum(sizes) > limits.pair_tokens:
            message = (
                f"{sum(sizes):,} query tokens over all candidates, more than the {limits.pair_tokens:,} this "
                "server runs for a request; send a shorter query, or fewer candidates"
            )
            raise ApiError(422, "too_much_work", message)
        return sizes

    def _probe(self, served: ServedStore) -> bool:
        """Whether a store can be read; if not, it is opened again and read once more."""
        for _ in range(2 if served.is_open else 0):
            state = served.state
            try:
                state.reranker.store.probe()
            except (RidgeRankError, OSError) as error:
                log.error("store %s cannot be read: %s", state.name, error)
                served.refresh(self._opened, seen=state)
            else:
                return True
        return False

    def _refresh_stores(self) -> None:
        while not self._closed.wait(_LOOK_SECONDS):
            for store in self.stores.values():
                try:
                    store.refresh(self._opened)
                except Exception:
                    log.exception("store %s was not looked at", store.name)


class PageImages:
    """Renders pages one at a time, keeps the last ones in memory, and decodes what callers send.

    A parser can crash, and take long: each works in a process of its own within a time limit. A request names
    a page by its id only; the store knows which file that is. Safe for any number of threads.
    """

    def __init__(self, limits: Limits, *, max_pixels: PixelBudget) -> None:
        """Images are decoded to pages of `max_pixels` at most."""
        self._limits = limits
        self._max_pixels = max_pixels
        self._images: ByteLRU[tuple[str, str], bytes] = ByteLRU(limits.image_cache_bytes, count_bytes=len)
        """By store and page id, as `_renders`."""
        self._renders: dict[tuple[str, str], Future[bytes]] = {}
        self._lock = Lock()
        self._renderer = ThreadPoolExecutor(1, thread_name_prefix="ridgerank-render")
        self._drawing, self._decoding = IsolatedProcess(), IsolatedProcess()

    def render(self, store: PageStore, page_id: str) -> Future[bytes]:
        """A stored page as PNG, rendered or from memory; requests for one page share its rendering."""
        key = (store.uri, page_id)
        with self._lock:
            if (image := self._images.get(key)) is not None:
                ready: Future[bytes] = Future()
                ready.set_result(image)
                return ready
            if key not in self._renders:
                if len(self._renders) >= self._limits.waiting_renders:
                    raise ApiError(429, "overloaded", "too many pages wait to be rendered", retry_after=1)
                self._renders[key] = self._renderer.submit(self._render, store, page_id)
            return self._renders[key]

    def thumbnail(self, store: PageStore, page_id: str) -> tuple[bytes, str]:
        """The small image in the store and its media type: call it outside the event loop."""
        [page] = store.pages([page_id])
        if not page.thumbnail:
            raise ApiError(404, "no_picture", "the page was stored without a thumbnail")
        with Image.open(io.BytesIO(page.thumbnail)) as image:
            return page.thumbnail, image.get_format_mimetype() or "application/octet-stream"

    def end_processes(self) -> None:
        """End the processes that decode and draw, whatever they do."""
        self._decoding.close()
        self._drawing.close()

    def close(self) -> None:
        """Stop at once."""
        self.end_processes()
        self._renderer.shutdown(cancel_futures=True)

    def _render(self, store: PageStore, page_id: str) -> bytes:
        key = (store.uri, page_id)
        try:
            [stored] = store.pages([page_id])
            name = (*stored.references, page_id)[0]
            paths = recall_sources(store.uri, [stored.source])
            seconds = self._limits.render_seconds
            data = self._drawing.call(draw_page, seconds, paths, page_id, max_pixels=_IMAGE_PIXELS)
            if data is None:
                gone = f"the document of {name} is no longer where it was indexed"
                raise ApiError(404, "document_gone", gone)
            self._images.put(key, data)
            return data
        except (TookTooLong, WorkerDied) as error:
            late = isinstance(error, TookTooLong)
            what = f"takes more than {seconds:g} s to draw" if late else "ends the process that draws it"
            raise ApiError(422, "bad_document", f"{name} {what}; look at its document") from error
        finally:
            with self._lock:
                del self._renders[key]

    def decoder(self) -> Callable[[bytes, str, str], Page]:
        """A function that makes pages of one request's images: of a file's bytes, a name and a text.

        It stops when the request's time is used up.
        """
        limits, seconds_left = self._limits, self._limits.decode_seconds

        def decode(content: bytes, name: str, text: str) -> Page:
            nonlocal seconds_left
            start = time.monotonic()
            made = partial(decode_page, max_pixels=self._max_pixels, image_pixels=limits.image_pixels)
            try:
                return self._decoding.call(made, max(0.0, seconds_left), content, name, text)
            except TookTooLong as error:
                raise DocumentError(
                    f"the images of this request take more than {limits.decode_seconds:g} s to decode; "
                    "send fewer or smaller ones, saved again as PNG or plain JPEG"
                ) from error
            except WorkerDied as error:
                raise DocumentError(
                    "an image that ends the process that decodes it; save it again as PNG"
                ) from error
            finally:
                seconds_left -= time.monotonic() - start

        return decode


def _overload(error: Exception) -> str | None:
    """Why the model cannot answer; None if that is the request's or the store's fault."""
    if isinstance(error, ApiError):
        return error.message if error.code in ("overloaded", "deadline_passed") else None
    if isinstance(error, RidgeRankError | OSError):
        return None
    return "the model failed"


def order_unread(reranker: Reranker, found: CandidateList) -> RankingResult:
    """The order of a list by its own scores, without the model."""
    [ranking] = reranker.rank_lists([replace(found, unread="the model did not answer")])
    return RankingResult(0.0, 0, ranking, found)


def base_name(name: str) -> str:
    """The name of a model or folder without the path to it: paths stay on the server."""
    return PurePath(name).name or name


async def _wait_for_hang_up(request: Request) -> None:
    """Return when the caller hangs up; the body has been read, so nothing else can come."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
