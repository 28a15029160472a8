"""The paths of the API: rerank, score, search, explain, judge, page images, and what the server is."""

import asyncio
import time
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST

from ridgerank.errors import QueryError, StoreError
from ridgerank.records import Explanation, to_json, validate_query
from ridgerank.reranker.candidates import CandidateList
from ridgerank.serving.dialects import (
    answer_headers,
    foreign_warnings,
    rerank_answer,
    token_usage,
    weight_source,
)
from ridgerank.serving.documents import AttachmentPages, RequestDocuments, query_text, resolve_documents
from ridgerank.serving.engine import RankingResult, Work
from ridgerank.serving.http_errors import ApiError, page_not_found, shorten_words
from ridgerank.serving.images import EncodedImage, image_etag, thumbnail_etag
from ridgerank.serving.judging import Judging, example_queries
from ridgerank.serving.matching_line import MatchedLine, find_matching_line
from ridgerank.serving.metrics import step_times
from ridgerank.serving.middleware import WORK_PATHS
from ridgerank.serving.schemas import (
    PAGE_ID,
    Document,
    ErrorResponse,
    ExplainRequest,
    JudgementRequest,
    JudgementsResponse,
    PairScore,
    QueryText,
    RerankRequest,
    RerankResponse,
    ScoreRequest,
    ScoreResponse,
    SearchRequest,
    SearchResponse,
    SearchResult,
    TeiResult,
)
from ridgerank.serving.service import Service, base_name
from ridgerank.store.page_filter import PageFilter
from ridgerank.store.sidecar import calibrations_folder

_MEANINGS = {
    400: "Not JSON, or not a request at all.",
    401: "No valid key.",
    404: "No such page.",
    408: "The request's own deadline passed.",
    409: "This server cannot do that: it has no retriever, or its model reads text.",
    413: "More than the server takes at once.",
    421: "Called under another name than the server's own.",
    422: "Not as expected; `fields` names what is wrong.",
    429: "As many requests as the server takes are being worked on; `Retry-After` says when to come back.",
    503: "Shutting down, or no answer within the server's limit.",
}
_ANY_ROUTE = (400, 401, 421)
_MODEL_ROUTE = (*_ANY_ROUTE, 404, 408, 409, 413, 422, 429, 503)
_FIRST_PAGE = "$response.body#/results/0/page_id"
_QUERY_AND_PAGE = {"query": "$response.body#/query", "page": _FIRST_PAGE}
_SEARCH_LINKS: dict[int | str, dict[str, Any]] = {
    200: {
        "links": {
            "image": {"operationId": "page_image", "parameters": {"page_id": _FIRST_PAGE}},
            "thumbnail": {"operationId": "page_thumbnail", "parameters": {"page_id": _FIRST_PAGE}},
            "explanation": {"operationId": "explain", "requestBody": _QUERY_AND_PAGE},
            "judgement": {"operationId": "judge", "requestBody": {**_QUERY_AND_PAGE, "grade": 1}},
        }
    }
}
"""What can be done with a page that a search found, for the OpenAPI document."""
_PageId = Annotated[str, Path(pattern=PAGE_ID, description="64 hex digits, as results have it.")]
_IfNoneMatch = Annotated[str | None, Header(alias="If-None-Match", max_length=1000)]
_IMAGE_RESPONSES: dict[int | str, dict[str, object]] = {
    200: {
        "description": "The image.",
        "content": {
            media_type: {"schema": {"type": "string", "format": "binary"}}
            for media_type in ("image/png", "image/jpeg", "image/webp")
        },
    },
    304: {"description": "As the caller has it."},
}


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that may answer with these statuses."""
    return {status: {"model": ErrorResponse, "description": _MEANINGS[status]} for status in statuses}


def ranking_router(service: Service) -> APIRouter:
    """The routes that need the model."""
    routes = APIRouter(responses=_errors(*_MODEL_ROUTE))

    @routes.post(
        "/rerank",
        summary="Rerank (Jina, vLLM; TEI if the request has texts)",
        response_model=RerankResponse | list[TeiResult],
    )
    async def rerank(request: Request, body: RerankRequest) -> object:
        """Put documents in order. With `texts` the answer has TEI's shape."""
        return await _rerank(service, request, body, version="")

    @routes.post("/v1/rerank", summary="Rerank (Cohere v1, Jina, vLLM)", response_model=RerankResponse)
    async def rerank_v1(request: Request, body: RerankRequest) -> object:
        """Put documents in order."""
        return await _rerank(service, request, body, version="1")

    @routes.post("/v2/rerank", summary="Rerank (Cohere v2)", response_model=RerankResponse)
    async def rerank_v2(request: Request, body: RerankRequest) -> object:
        """Put documents in order."""
        return await _rerank(service, request, body, version="2")

    @routes.post("/score", summary="Score pairs (vLLM)")
    @routes.post("/v1/score", summary="Score pairs (vLLM)")
    async def score(request: Request, body: ScoreRequest) -> ScoreResponse:
        """The readout score of each pair of query and document: no retriever, nothing standardized."""
        return await _score(service, request, body)

    @routes.post("/v1/search", summary="Retrieve and rerank", responses=_SEARCH_LINKS)
    async def search(request: Request, body: SearchRequest) -> SearchResponse:
        """Let the retriever find k pages, rerank them, return the best."""
        _require_few_candidates(service, body.k)
        if service.retriever is None:
            raise ApiError(
                409,
                "no_retriever",
                "this server has no retriever to search with; send candidates to /v1/rerank",
            )
        within = PageFilter.of(body.documents, body.metadata)
        if within:
            await _require_some_pages(service, within)
        work = service.search_work(body.query, body.k, within or None)
        [result] = await service.rank(request, [work], deadline_ms=body.deadline_ms, min_score=body.min_score)
        lines = {}
        if body.lines:
            lines = await asyncio.to_thread(_matching_lines, service, result, top_n=body.top_n)
        return _search_response(service, result, top_n=body.top_n, lines=lines)

    @routes.post("/v1/explain", summary="Where a query looked on a page", operation_id="explain")
    async def explain(request: Request, body: ExplainRequest) -> Explanation:
        """The attention of the query's last state on the page's stored positions."""
        page_id = await _find_page(service, body.page)
        exit_layer = service.reranker.store.lineage.storage.exit_layer
        if body.layer is not None and body.layer >= exit_layer:
            raise ApiError(
                422,
                "not_possible",
                f"layer {body.layer} is not stored; expected one of 0 to {exit_layer - 1}",
            )
        return await service.explain(
            request, body.query, page_id, layer=body.layer, deadline_ms=body.deadline_ms
        )

    return routes


def judgement_router(service: Service) -> APIRouter:
    """Judging pages; a server takes judgements only if it was started with --judge."""
    routes = APIRouter(prefix="/v1/judgements", responses=_errors(*_MODEL_ROUTE))

    def judging() -> Judging:
        if service.judging is None:
            raise ApiError(
                409, "judging_off", "this server takes no judgements; start it with `ridgerank serve --judge`"
            )
        return service.judging

    @routes.get("", summary="Judgements, and what they make of the weight")
    async def judgements(
        query: Annotated[QueryText, Query()], judge: Annotated[str, Query(max_length=60)] = ""
    ) -> JudgementsResponse:
        """The judgements of one query, the weight with all of them, and what to judge next."""
        return await asyncio.to_thread(judging().report, query.strip(), judge.strip())

    @routes.post("", summary="Judge a page", operation_id="judge")
    async def judge(request: Request, body: JudgementRequest) -> JudgementsResponse:
        """Keep a judgement beside the store, or take one back; it is on disk when this answers."""
        kept = judging()
        try:
            query = validate_query(body.query)
        except QueryError as error:
            raise ApiError(422, "bad_query", str(error)) from error
        page_id = await _find_page(service, body.page)
        if not await asyncio.to_thread(kept.knows, query):
            work = service.search_work(query, service.reranker.calibration.diagnostics.candidates)
            [result] = await service.rank(request, [work], deadline_ms=body.deadline_ms)
            await asyncio.to_thread(kept.keep_list, result.ranking)
        try:
            await asyncio.to_thread(kept.keep, query, page_id, body.grade, body.judge)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ApiError(409, "read_only", f"the judgement could not be kept: {reason}") from error
        return await asyncio.to_thread(kept.report, query, body.judge)

    return routes


def image_router(service: Service) -> APIRouter:
    """Pages as people see them: rendered at reading size, and as thumbnails."""
    routes = APIRouter(prefix="/v1/pages", responses=_errors(*_ANY_ROUTE, 404, 422, 429))
    images = service.page_images

    shown: dict[str, Any] = {"response_class": Response, "responses": _IMAGE_RESPONSES}

    async def answer(
        page_id: str, etag: str, if_none_match: str | None, make: Callable[[str], Awaitable[EncodedImage]]
    ) -> Response:
        await asyncio.to_thread(images.require_page, page_id)
        headers = {"ETag": etag, "Cache-Control": "private, max-age=86400, immutable"}
        if _has_current(if_none_match, etag):
            return Response(status_code=304, headers=headers)
        made = await make(page_id)
        return Response(made.data, media_type=made.media_type, headers=headers)

    @routes.get("/{page_id}/image", summary="A page, rendered", operation_id="page_image", **shown)
    async def image(page_id: _PageId, if_none_match: _IfNoneMatch = None) -> Response:
        """The page at reading size, rendered from the document it was indexed from."""

        async def render(page_id: str) -> EncodedImage:
            return await asyncio.shield(asyncio.wrap_future(images.render(page_id)))

        return await answer(page_id, image_etag(page_id), if_none_match, render)

    @routes.get("/{page_id}/thumbnail", summary="A page, small", operation_id="page_thumbnail", **shown)
    async def thumbnail(page_id: _PageId, if_none_match: _IfNoneMatch = None) -> Response:
        """The small image the store holds."""
        return await answer(
            page_id,
            thumbnail_etag(page_id),
            if_none_match,
            lambda page_id: asyncio.to_thread(images.thumbnail, page_id),
        )

    return routes


def info_router(service: Service) -> APIRouter:
    """What the server is: store, calibration, model, health, metrics."""
    routes = APIRouter(responses=_errors(*_ANY_ROUTE))

    @routes.get("/v1/store", summary="The page store at a glance")
    def store() -> dict[str, Any]:
        """Pages, bytes, the model they were made with, and what this server does with them."""
        return _store_facts(service)

    @routes.get("/v1/calibration", summary="The calibration's report")
    def calibration() -> dict[str, Any]:
        """How readout and weight were fitted; null is what could not be estimated."""
        calibration = service.reranker.calibration
        facts = calibration.facts()
        diagnostics = facts.pop("diagnostics")
        diagnostics["queries_from"] = base_name(diagnostics["queries_from"])
        names = {"name": service.readout, "retriever": base_name(calibration.retriever)}
        del facts["retriever_source"]  # a path
        return {**facts, **names, **diagnostics}

    @routes.get(
        "/v1/calibration/picture",
        summary="The calibration's picture",
        response_class=Response,
        responses={**_errors(404), 200: _IMAGE_RESPONSES[200]},
    )
    def picture() -> Response:
        """What `calibrate` drew: the penalty, and the agreement with the teacher."""
        path = calibrations_folder(service.reranker.store.uri) / f"{service.readout}.png"
        try:
            return Response(path.read_bytes(), media_type="image/png")
        except OSError:
            raise ApiError(
                404, "no_picture", "this calibration has no picture; install matplotlib and calibrate again"
            ) from None

    @routes.get("/v1/models", summary="The model this server ranks with")
    def models() -> dict[str, Any]:
        """One model, under whatever name requests ask for it."""
        model = {
            "id": service.model,
            "object": "model",
            "created": service.started,
            "owned_by": "ridgerank",
            "endpoints": sorted(WORK_PATHS),
            "root": base_name(service.reranker.backbone.name),
        }
        return {"object": "list", "data": [model]}

    @routes.get("/healthz", summary="Whether the server runs")
    @routes.get("/health", summary="Whether the server runs (vLLM, TEI)")
    async def healthz() -> dict[str, str]:
        """Answers as long as the process runs."""
        return {"status": "ok"}

    @routes.get("/readyz", summary="Whether the server takes requests", responses=_errors(503))
    def readyz() -> dict[str, str]:
        """Refused while the server shuts down and while the store cannot be read."""
        service.require_ready()
        return {"status": "ready"}

    @routes.get(
        "/metrics",
        summary="Counts for Prometheus",
        response_class=Response,
        responses={
            200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Counts."}
        },
    )
    def metrics() -> Response:
        """Prometheus' text format."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return routes


async def _rerank(service: Service, request: Request, body: RerankRequest, *, version: str) -> object:
    documents = await _resolve(service, body.sent_documents)
    no_scores = service.retriever is None or bool(documents.attachments)
    work, page_ids = _rank_work(
        service,
        query_text(body.query),
        documents,
        retriever_scores=body.retriever_scores,
        readout_alone=body.retriever_scores is None and no_scores,
    )
    [result] = await service.rank(request, [work], deadline_ms=body.deadline_ms, min_score=body.min_score)
    answer = rerank_answer(service, result, body, documents, page_ids(), version=version)
    if isinstance(answer, list):
        shown = [each.model_dump() for each in answer]
        return JSONResponse(shown, headers=answer_headers(result.ranking))
    return JSONResponse(answer) if isinstance(answer, dict) else answer


async def _score(service: Service, request: Request, body: ScoreRequest) -> ScoreResponse:
    sent_queries, sent = body.pair_lists
    queries = [query_text(query) for query in sent_queries]
    documents = await _resolve(service, sent)
    indices: dict[str, list[int]] = defaultdict(list)  # query → its documents
    for index in range(len(sent)):
        indices[queries[index if len(queries) > 1 else 0]].append(index)
    works = [
        _rank_work(service, query, documents.select(selected), retriever_scores=None, readout_alone=True)
        for query, selected in indices.items()
    ]
    results = await service.rank(request, [work for work, _ in works], deadline_ms=body.deadline_ms)
    scores = [0.0] * len(sent)
    for selected, result, (_, page_ids) in zip(indices.values(), results, works, strict=True):
        readout_scores = {page.page_id: page.readout_score for page in result.ranking.pages}
        for index, page_id in zip(selected, page_ids(), strict=True):
            scores[index] = readout_scores[page_id]
    return ScoreResponse(
        id=body.request_id or uuid.uuid4().hex,
        created=int(time.time()),
        model=service.model,
        data=[PairScore(index=index, score=score) for index, score in enumerate(scores)],
        usage=token_usage(service, *(result.candidates for result in results)),
        warnings=foreign_warnings(service, body),
    )


async def _resolve(service: Service, documents: Sequence[Document]) -> RequestDocuments:
    """Match documents with stored pages, in a thread: the event loop does not wait for the store."""
    _require_few_candidates(service, len(documents))
    return await asyncio.to_thread(
        resolve_documents,
        documents,
        service.reranker.store,
        service.settings,
        reads_text=service.reranker.backbone.reads_text,
    )


def _rank_work(
    service: Service,
    query: str,
    documents: RequestDocuments,
    *,
    retriever_scores: list[float] | None,
    readout_alone: bool,
) -> tuple[Work, Callable[[], list[str]]]:
    """The work of ranking documents; once it is done, the page of each of them, in their order."""
    attached: dict[str, str] = {}

    def prepare(check_caller: Callable[[], None]) -> CandidateList:
        pages = AttachmentPages(
            documents.attachments,
            check_caller,
            max_pixels=service.reranker.backbone.page_budget,
            decode=service.image_decoder.for_request(),
        )
        candidates = service.reranker.prepare(
            query,
            documents.candidates(retriever_scores),
            encode_missing=pages if documents.attachments else None,
            weight=1.0 if readout_alone else None,
        )
        attached.update(pages.page_ids)
        return candidates

    return Work(query, len(documents.names), prepare), lambda: [
        attached.get(name, name) for name in documents.names
    ]


async def _find_page(service: Service, name: str) -> str:
    page_id = await asyncio.to_thread(service.reranker.store.lookup, name)
    if page_id is None:
        raise page_not_found(name)
    return page_id


async def _require_some_pages(service: Service, within: PageFilter) -> None:
    """Refuse a filter that lets no page through; the store is asked outside the event loop."""
    try:
        await asyncio.to_thread(service.reranker.store.select, within)
    except StoreError as error:
        pages = shorten_words(str(within))
        raise ApiError(
            422, "nothing_to_search", f"no stored page has {pages}; check the names, or leave them out"
        ) from error


def _require_few_candidates(service: Service, count: int) -> None:
    limit = service.settings.limits.candidates
    if count > limit:
        raise ApiError(
            422, "too_many_candidates", f"{count} candidates, more than the {limit} this server ranks at once"
        )


def _search_response(
    service: Service, result: RankingResult, *, top_n: int, lines: dict[str, MatchedLine | None]
) -> SearchResponse:
    """The best pages of a search, with both standardized scores, so that a caller can use another weight."""
    ranking = result.ranking
    shown = ("retriever_part", "readout_part")  # the page computes these for any weight
    return SearchResponse(
        id=uuid.uuid4().hex,
        model=service.model,
        query=ranking.query,
        weight=ranking.weight,
        weight_source=weight_source(result.candidates),
        reranked=ranking.reranked,
        reasons=list(ranking.reasons),
        results=[
            SearchResult(
                **{name: value for name, value in to_json(page).items() if name not in shown},
                image_url=f"/v1/pages/{page.page_id}/image",
                thumbnail_url=f"/v1/pages/{page.page_id}/thumbnail",
                reason=page.reason,
                line=lines.get(page.page_id),
            )
            for page in ranking.pages[:top_n]
        ],
        latency_ms=step_times(result),
    )


def _matching_lines(service: Service, result: RankingResult, *, top_n: int) -> dict[str, MatchedLine | None]:
    """Page id → the line that matches the query best. It reads the store: call it outside the event loop."""
    page_ids = [page.page_id for page in result.ranking.pages[:top_n]]
    pages = service.reranker.store.pages(page_ids) if page_ids else []
    return {page.page_id: find_matching_line(page.text, result.ranking.query) for page in pages}


def _store_facts(service: Service) -> dict[str, Any]:
    """Size and lineage of the store, without its path."""
    store, backbone = service.reranker.store, service.reranker.backbone
    info = store.info()
    lineage = info.lineage.to_dict()
    return {
        "name": base_name(info.uri),
        "pages": info.pages,
        "prefix_bytes": info.prefix_bytes,
        "bytes_per_page": info.bytes_per_page,
        "lineage": {**lineage, "backbone": base_name(lineage["backbone"])},
        "retriever": None if service.retriever is None else base_name(service.retriever),
        "encodes_missing": service.settings.encode_missing,
        "reads_text": backbone.reads_text,
        "current": store.is_current(),
        "judging": service.judging is not None,
        "examples": example_queries(service.reranker),
        "labels": store.label_examples(),
    }


def _has_current(if_none_match: str | None, etag: str) -> bool:
    """Whether the caller's If-None-Match header, a list of tags or `*`, covers the current tag."""
    tags = [tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")]
    return etag in tags or tags == ["*"]
