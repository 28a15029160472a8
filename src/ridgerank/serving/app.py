"""The HTTP application: the paths of the API over one `Service`, and the web page.

No globals: a process may hold several. The web page loads nothing from elsewhere and runs no inline script;
its Content-Security-Policy forbids both.
"""

import asyncio
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Unpack

import fastapi
from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

from ridgerank.errors import StoreError
from ridgerank.records import Explanation, validate_query
from ridgerank.reranker.candidates import CandidateList, ListOptions, OnMissing
from ridgerank.serving import schemas
from ridgerank.serving.answers import foreign_warnings, rerank_answer, search_answer, token_usage
from ridgerank.serving.documents import RequestDocuments, query_text, resolve_documents
from ridgerank.serving.engine import Work
from ridgerank.serving.http_errors import ApiError, page_not_found, shorten_words
from ridgerank.serving.judging import Judging, example_queries
from ridgerank.serving.metrics import OPERATIONS
from ridgerank.serving.middleware import DOCS_PATH, RequestMiddleware
from ridgerank.serving.service import Answer, Service, base_name, order_unread
from ridgerank.serving.stores import StoreState
from ridgerank.store.page_filter import PageFilter
from ridgerank.store.sidecar import calibrations_folder
from ridgerank.version import __version__

_ENCODING_SHARE = 0.5
"""Of a request's time: after it, no further text or image is encoded."""
_ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {
        "model": schemas.ErrorResponse,
        "description": "The request cannot be answered; `code` says why.",
    },
    "5XX": {"model": schemas.ErrorResponse, "description": "The server cannot answer now."},
}
_PageId = Annotated[
    str, fastapi.Path(pattern=schemas.PAGE_ID, description="64 hex digits, as results have it.")
]
_IMAGE: dict[str, Any] = {
    "response_class": Response,
    "responses": {
        200: {
            "content": {
                f"image/{kind}": {"schema": {"type": "string", "format": "binary"}}
                for kind in ("png", "jpeg", "webp")
            }
        }
    },
}


def create_app(service: Service, *, close: bool = True, close_seconds: float = 10.0) -> FastAPI:
    """Make the application; it closes the service when it shuts down, unless `close` is false.

    Admitted requests then have `close_seconds` to finish.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        if close:
            service.close(seconds=close_seconds)

    app = FastAPI(
        title="RidgeRank",
        version=__version__,
        description="Visual document reranking behind the rerank API of existing clients.",
        lifespan=lifespan,
        docs_url=DOCS_PATH,
        redoc_url=None,
        root_path_in_servers=False,  # a caller's path may name a store, and would be kept there
    )
    app.include_router(make_router(service))
    folder = Path(__file__).parent / "static"
    app.mount("/page", StaticFiles(directory=folder))
    app.add_api_route("/", lambda: FileResponse(folder / "index.html"), include_in_schema=False)
    for kind in (RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _raise)  # the middleware answers all errors
    app.add_middleware(RequestMiddleware, service=service)
    return app


async def _raise(request: Request, error: Exception) -> Response:
    raise error


def make_router(service: Service) -> APIRouter:
    """All routes of the API."""
    routes = APIRouter(responses=_ERRORS)

    async def rerank(request: Request, body: schemas.RerankRequest) -> object:
        """Put documents in order. With `texts`, `/rerank` answers in TEI's shape."""
        return await service.answer(request, partial(_rerank, service, request, body), store=body.store)

    for path, clients in (
        ("/rerank", "Jina, vLLM; TEI if the request has texts"),
        ("/v1/rerank", "Cohere v1, Jina, vLLM"),
        ("/v2/rerank", "Cohere v2"),
    ):
        shapes = schemas.RerankResponse | list[schemas.TeiResult]
        routes.post(path, summary=f"Rerank ({clients})", response_model=shapes)(rerank)

    @routes.post("/score", summary="Score pairs (vLLM)")
    @routes.post("/v1/score", summary="Score pairs (vLLM)")
    async def score(request: Request, body: schemas.ScoreRequest) -> schemas.ScoreResponse:
        """The readout score of each pair of query and document: no retriever, nothing standardized."""
        return await service.answer(request, partial(_score, service, request, body), store=body.store)

    @routes.post("/v1/search", summary="Retrieve and rerank")
    async def search(request: Request, body: schemas.SearchRequest) -> schemas.SearchResponse:
        """Let the retriever find k pages, rerank them, return the best."""
        return await service.answer(request, partial(_search, service, request, body), store=body.store)

    @routes.post("/v1/explain", summary="Where a query looked on a page")
    async def explain(request: Request, body: schemas.ExplainRequest) -> Explanation:
        """The attention of the query's last state on the page's stored positions."""
        return await service.answer(request, partial(_explain, service, request, body), store=body.store)

    @routes.get("/v1/judgements", summary="Judgements, and what they make of the weight")
    async def judgements(
        request: Request,
        query: Annotated[schemas.QueryText, Query()],
        judge: Annotated[str, Query(max_length=60)] = "",
        offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
    ) -> schemas.JudgementsResponse:
        """Judgements of one query, 200 pages from `offset` on; the weight with all; what to judge next."""

        async def report(state: StoreState) -> schemas.JudgementsResponse:
            make = partial(_judging(state).report, query.strip(), judge.strip(), offset=offset)
            return await asyncio.get_running_loop().run_in_executor(service.judging_thread, make)

        return await service.answer(request, report)

    @routes.post("/v1/judgements", summary="Judge a page")
    async def judge(request: Request, body: schemas.JudgementRequest) -> schemas.JudgementsResponse:
        """Keep a judgement beside the store, or take one back; it is on disk when this answers."""
        keep = partial(_keep_judgement, service, body)
        return await service.answer(request, keep, store=body.store)

    @routes.get("/v1/pages/{page_id}/image", summary="A page, rendered", **_IMAGE)
    async def image(request: Request, page_id: _PageId) -> Response:
        """The page at reading size, rendered from the document it was indexed from."""
        send = partial(_send_image, service, page_id)
        return await service.answer(request, send)

    @routes.get("/v1/pages/{page_id}/thumbnail", summary="A page, small", **_IMAGE)
    async def thumbnail(request: Request, page_id: _PageId) -> Response:
        """The small image the store holds."""
        send = partial(_send_image, service, page_id, small=True)
        return await service.answer(request, send)

    async def answer_in_thread(request: Request, make: Callable[[StoreState], Answer]) -> Answer:
        return await service.answer(request, lambda state: asyncio.to_thread(make, state))

    @routes.get("/v1/store", summary="The page store at a glance")
    async def store(request: Request) -> dict[str, Any]:
        """Pages, bytes, the model they were made with, and what this server does with them."""
        return await answer_in_thread(request, partial(_store_facts, service))

    @routes.get("/v1/calibration", summary="The calibration's report")
    async def calibration(request: Request) -> dict[str, Any]:
        """How readout and weight were fitted; null is what could not be estimated."""
        return await answer_in_thread(request, _calibration_facts)

    @routes.get("/v1/calibration/picture", summary="The calibration's picture", **_IMAGE)
    async def picture(request: Request) -> Response:
        """What `calibrate` drew: the penalty, and the agreement with the teacher."""
        return await answer_in_thread(request, _picture)

    @routes.get("/v1/models", summary="The model this server ranks with, and its stores")
    async def models(request: Request) -> dict[str, Any]:
        """One model, under whatever name requests ask for it, and the stores that the key may use."""
        model = {
            "id": service.model,
            "object": "model",
            "created": service.started,
            "owned_by": "ridgerank",
            "endpoints": sorted(OPERATIONS),
            "root": base_name(service.backbone.name),
            "stores": [
                {"name": store.name, "state": store.state.version if store.is_open else None}
                for store in service.allowed_stores(request)
            ],
        }
        return {"object": "list", "data": [model]}

    @routes.get("/healthz", summary="Whether the server runs")
    @routes.get("/health", summary="Whether the server runs (vLLM, TEI)")
    async def healthz() -> dict[str, str]:
        """Answers as long as the process runs."""
        return {"status": "ok"}

    @routes.get("/readyz", summary="Whether the server takes requests")
    def readyz() -> dict[str, str]:
        """Refused while the server shuts down and while no store can be read."""
        service.require_ready()
        return {"status": "ready"}

    @routes.get(
        "/metrics",
        summary="Counts for Prometheus",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def metrics(request: Request) -> Response:
        """Prometheus' text format; a key that is limited to some stores gets none."""
        if request.scope["ridgerank"].allowed is not None:
            raise ApiError(403, "forbidden", "metrics are of all stores, and this key is limited to some")
        return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return routes


async def _send_image(service: Service, page_id: str, state: StoreState, *, small: bool = False) -> Response:
    store, images = state.reranker.store, service.page_images
    await _find_page(state, page_id)
    if small:
        data, media_type = await asyncio.to_thread(images.thumbnail, store, page_id)
    else:
        data = await asyncio.shield(asyncio.wrap_future(images.render(store, page_id)))
        media_type = "image/png"
    headers = {"Cache-Control": "private, max-age=86400, immutable"}  # the id is a digest of the content
    return Response(data, media_type=media_type, headers=headers)


async def _search(
    service: Service, request: Request, body: schemas.SearchRequest, state: StoreState
) -> schemas.SearchResponse:
    _require_few_candidates(service, body.k)
    if state.retriever is None:
        message = "this store has no retriever to search with; send candidates to /v1/rerank"
        raise ApiError(409, "no_retriever", message)
    within = PageFilter.of(body.documents, body.metadata)
    if within:
        try:
            await asyncio.to_thread(state.reranker.store.select, within)
        except StoreError as error:
            lack = f"no stored page has {shorten_words(str(within))}; check the names, or leave them out"
            raise ApiError(422, "nothing_to_search", lack) from error
    work = _search_work(state, body.query, body.k, within or None)
    if state.own_words:
        work = await service.prepare_apart(work, body)
    [result] = await service.rank(request, state, [work], body)
    # In a thread, because lines are read from the store.
    return await asyncio.to_thread(search_answer, service, state, result, top_n=body.top_n, lines=body.lines)


async def _explain(
    service: Service, request: Request, body: schemas.ExplainRequest, state: StoreState
) -> Explanation:
    page_id, reranker = await _find_page(state, body.page), state.reranker
    work = Work(reranker, body.query, 1, lambda _: reranker.explain(body.query, page_id, layer=body.layer))
    [result] = await service.run(request, [work], deadline_ms=body.deadline_ms)
    assert isinstance(result, Explanation)  # what the work makes
    return result


def _judging(state: StoreState) -> Judging:
    if state.judging is None:
        message = "this server takes no judgements; start it with `ridgerank serve --judge`"
        raise ApiError(409, "judging_off", message)
    return state.judging


async def _keep_judgement(
    service: Service, body: schemas.JudgementRequest, state: StoreState
) -> schemas.JudgementsResponse:
    kept = _judging(state)
    query = validate_query(body.query)
    page_id = await _find_page(state, body.page)

    def keep() -> schemas.JudgementsResponse:
        kept.keep(query, page_id, body.grade, body.judge)
        if not kept.knows(query):
            work = _search_work(state, query, state.reranker.calibration.diagnostics.candidates)
            service.rank_later(work, kept.keep_list)
        return kept.report(query, body.judge)

    return await asyncio.get_running_loop().run_in_executor(service.judging_thread, keep)


async def _rerank(
    service: Service, request: Request, body: schemas.RerankRequest, state: StoreState
) -> object:
    version = request.scope["route"].path.removesuffix("/rerank")[2:]  # empty, 1 or 2
    documents = await _resolve(service, state, body.sent_documents, body.on_missing)
    query, scores = query_text(body.query), body.retriever_scores
    work = _rank_work(
        service,
        state,
        query,
        documents,
        retriever_scores=scores,
        retriever=body.retriever or service.settings.scores_from,
        order=body.order,
        on_missing=body.on_missing,
        max_tokens_per_doc=body.max_tokens_per_doc,
        seconds=_ENCODING_SHARE * service.seconds(body.deadline_ms),
    )
    if not documents.attachments and (scores is not None or state.own_words):
        work = await service.prepare_apart(work, body)
    elif scores is not None and service.degrades(body):
        work = replace(work, order=order_unread(state.reranker, documents.as_sent(query, scores)))
    [result] = await service.rank(request, state, [work], body)
    answer = rerank_answer(service, result, body, documents, version=version)
    if isinstance(answer, list):
        shown, ranking = [each.model_dump() for each in answer], result.ranking
        reasons = "; ".join(ranking.reasons).encode("ascii", "replace").decode()
        headers = {"X-Reranked": str(ranking.reranked).lower(), "X-Reasons": reasons}
        return JSONResponse(shown, headers=headers)
    return JSONResponse(answer) if isinstance(answer, dict) else answer


async def _score(
    service: Service, request: Request, body: schemas.ScoreRequest, state: StoreState
) -> schemas.ScoreResponse:
    sent_queries, sent = body.pair_lists
    queries = [query_text(query) for query in sent_queries]
    documents = await _resolve(service, state, sent, "error")
    indices: dict[str, list[int]] = defaultdict(list)  # query → its documents
    for index in range(len(sent)):
        indices[queries[index if len(queries) > 1 else 0]].append(index)
    works = [
        _rank_work(
            service,
            state,
            query,
            documents.select(selected),
            retriever_scores=None,
            weight=1.0,
            on_missing="error",
            max_tokens_per_doc=body.max_tokens_per_doc,
        )
        for query, selected in indices.items()
    ]
    wish = schemas.RankingModel(deadline_ms=body.deadline_ms, on_overload="error")
    results = await service.rank(request, state, works, wish)
    scores = [0.0] * len(sent)
    for selected, result in zip(indices.values(), results, strict=True):
        readout_scores = {page.page_id: page.readout_score for page in result.ranking.pages}
        for index, page_id in zip(selected, result.candidates.sent, strict=True):
            scores[index] = readout_scores[page_id]
    return schemas.ScoreResponse(
        id=body.request_id or uuid.uuid4().hex,
        created=int(time.time()),
        model=service.model,
        data=[schemas.PairScore(index=index, score=score) for index, score in enumerate(scores)],
        usage=token_usage(service, *(result.candidates for result in results)),
        warnings=foreign_warnings(service, body),
    )


async def _resolve(
    service: Service, state: StoreState, documents: Sequence[schemas.Document], on_missing: OnMissing
) -> RequestDocuments:
    """Match documents with stored pages, in a thread: the event loop does not wait for the store."""
    _require_few_candidates(service, len(documents))
    store = state.reranker.store
    return await asyncio.to_thread(
        resolve_documents, documents, store, service.settings, on_missing=on_missing
    )


def _rank_work(
    service: Service,
    state: StoreState,
    query: str,
    documents: RequestDocuments,
    *,
    retriever_scores: list[float] | None,
    **options: Unpack[ListOptions],
) -> Work:
    """The work of ranking documents; a weight of 1 ranks by the readout alone."""

    def prepare(check_caller: Callable[[], None]) -> CandidateList:
        candidates = documents.candidates(retriever_scores, service.page_images.decoder())
        made: ListOptions = {**options, "before_encoding": check_caller}
        return state.reranker.prepare(query, candidates, **made)

    return Work(state.reranker, query, len(documents.names), prepare)


def _search_work(state: StoreState, query: str, k: int, within: PageFilter | None = None) -> Work:
    """Retrieve `k` pages and rank them. Alone: a retriever sums in another order for several queries."""
    reranker = state.reranker
    return Work(reranker, query, k, lambda _: reranker.retrieve([query], k=k, within=within)[0])


async def _find_page(state: StoreState, name: str) -> str:
    page_id = await asyncio.to_thread(state.reranker.store.lookup, name)
    if page_id is None:
        raise page_not_found(name)
    return page_id


def _require_few_candidates(service: Service, count: int) -> None:
    limit = service.settings.limits.candidates
    if count > limit:
        message = f"{count} candidates, more than the {limit} this server ranks at once"
        raise ApiError(422, "too_many_candidates", message)


def _calibration_facts(state: StoreState) -> dict[str, Any]:
    calibration = state.reranker.calibration
    facts = calibration.facts()
    diagnostics = facts.pop("diagnostics")
    diagnostics["queries_from"] = base_name(diagnostics["queries_from"])
    names = {"name": state.readout, "retriever": base_name(calibration.retriever)}
    del facts["retriever_source"]  # a path
    return {**facts, **names, **diagnostics}


def _picture(state: StoreState) -> Response:
    path = calibrations_folder(state.reranker.store.uri) / f"{state.readout}.png"
    try:
        return Response(path.read_bytes(), media_type="image/png")
    except OSError:
        message = "this calibration has no picture; install matplotlib and calibrate again"
        raise ApiError(404, "no_picture", message) from None


def _store_facts(service: Service, state: StoreState) -> dict[str, Any]:
    """Size and lineage of the store, without its path."""
    store = state.reranker.store
    info = store.info()
    lineage = info.lineage.to_dict()
    return {
        "name": base_name(info.uri) if len(service.stores) == 1 else state.name,
        "state": state.version,
        "pages": info.pages,
        "prefix_bytes": info.prefix_bytes,
        "bytes_per_page": info.bytes_per_page,
        "lineage": {**lineage, "backbone": base_name(lineage["backbone"])},
        "retriever": None if state.retriever is None else base_name(state.retriever),
        "encodes_missing": service.settings.encode_missing,
        "reads_text": service.backbone.reads_text,
        "judging": state.judging is not None,
        "examples": example_queries(state.reranker),
        "labels": store.label_examples(),
    }
