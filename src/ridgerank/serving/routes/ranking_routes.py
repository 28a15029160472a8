"""Rerank, score, search, explain: the routes that need the model."""

import asyncio
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from ridgerank.errors import StoreError
from ridgerank.serving.attachments import AttachmentPages
from ridgerank.serving.dialects import check_request, rerank_answer
from ridgerank.serving.document_parts import query_text
from ridgerank.serving.http_errors import ApiError, page_not_found, shorten_words
from ridgerank.serving.jobs import ExplainWork, PreparedDocuments, RankWork, SearchWork
from ridgerank.serving.request_documents import RequestDocuments, resolve_documents
from ridgerank.serving.responses import (
    foreign_warnings,
    matching_lines,
    rerank_response,
    search_response,
    tei_results,
    token_usage,
)
from ridgerank.serving.routes.error_responses import MODEL_ROUTE, error_responses
from ridgerank.serving.routes.search_links import EXPLAIN, SEARCH_LINKS
from ridgerank.serving.schemas.document_schemas import Document
from ridgerank.serving.schemas.rerank_schemas import RerankRequest, RerankResponse, TeiResult
from ridgerank.serving.schemas.score_schemas import PairScore, ScoreRequest, ScoreResponse
from ridgerank.serving.schemas.search_schemas import (
    ExplainRequest,
    ExplainResponse,
    SearchRequest,
    SearchResponse,
)
from ridgerank.serving.service import Service
from ridgerank.store.page_filter import PageFilter


def ranking_router(service: Service) -> APIRouter:
    """The routes of one service that need its model."""
    routes = APIRouter(responses=error_responses(*MODEL_ROUTE))

    @routes.post(
        "/rerank",
        summary="Rerank (Jina, vLLM, infinity; TEI where the request has texts)",
        response_model=RerankResponse | list[TeiResult],
    )
    @routes.post(
        "/invocations", summary="Rerank (SageMaker)", response_model=RerankResponse | list[TeiResult]
    )
    async def rerank(request: Request, body: RerankRequest) -> object:
        """Put documents in order. With `texts` the answer has TEI's shape."""
        return await _rerank(service, request, body, version="1", tei=True)

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

    @routes.post("/v1/search", summary="Retrieve and rerank", responses=SEARCH_LINKS)
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
        work = SearchWork(body.query, body.k, within or None)
        [result] = await service.rank(request, [work], deadline_ms=body.deadline_ms, min_score=body.min_score)
        lines = {}
        if body.lines:
            lines = await asyncio.to_thread(matching_lines, service, result.ranking, top_n=body.top_n)
        return search_response(service, result, top_n=body.top_n, lines=lines)

    @routes.post("/v1/explain", summary="Where a query looked on a page", operation_id=EXPLAIN)
    async def explain(request: Request, body: ExplainRequest) -> ExplainResponse:
        """The attention of the query's last state on the page's stored positions."""
        page_id = await asyncio.to_thread(service.reranker.store.lookup, body.page)
        if page_id is None:
            raise page_not_found(body.page)
        _require_stored_layer(service, body.layer)
        work = ExplainWork(
            body.query, lambda: service.reranker.explain(body.query, page_id, layer=body.layer)
        )
        explanation = await service.explain(request, work, deadline_ms=body.deadline_ms)
        return ExplainResponse(**asdict(explanation))

    return routes


async def _require_some_pages(service: Service, within: PageFilter) -> None:
    """Refuse a filter that lets no page through; the store is asked outside the event loop."""
    try:
        await asyncio.to_thread(service.reranker.store.select, within)
    except StoreError as error:
        pages = shorten_words(str(within))
        raise ApiError(
            422, "nothing_to_search", f"no stored page has {pages}; check the names, or leave them out"
        ) from error


async def _rerank(
    service: Service, request: Request, body: RerankRequest, *, version: str, tei: bool = False
) -> RerankResponse | list[TeiResult] | JSONResponse:
    """The answer in TEI's shape where `tei` and the request has texts, else as the dialect has it."""
    dialect = service.settings.dialect
    check_request(dialect, body)
    documents = await _resolve(service, body.sent_documents)
    no_scores = service.retriever is None or bool(documents.attachments)
    work = _rank_work(
        service,
        query_text(body.query),
        documents,
        retriever_scores=body.retriever_scores,
        readout_alone=body.retriever_scores is None and no_scores,
    )
    [result] = await service.rank(request, [work], deadline_ms=body.deadline_ms, min_score=body.min_score)
    response = rerank_response(service, result, body, documents, version=version)
    if tei and body.texts is not None:
        return tei_results(response, body, documents)
    answer = rerank_answer(dialect, response, body)
    return response if answer is None else JSONResponse(answer)


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
    results = await service.rank(request, works, deadline_ms=body.deadline_ms)
    scores = [0.0] * len(sent)
    for selected, result in zip(indices.values(), results, strict=True):
        readout_scores = {page.page_id: page.readout_score for page in result.ranking.pages}
        for index, page_id in zip(selected, result.document_page_ids, strict=True):
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
    return await asyncio.to_thread(resolve_documents, documents, service.reranker.store, service.settings)


def _rank_work(
    service: Service,
    query: str,
    documents: RequestDocuments,
    *,
    retriever_scores: list[float] | None,
    readout_alone: bool,
) -> RankWork:
    def prepare(check_caller: Callable[[], None]) -> PreparedDocuments:
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
        return PreparedDocuments(
            candidates, tuple(pages.page_ids.get(name, name) for name in documents.names)
        )

    return RankWork(query, len(documents.names), prepare)


def _require_stored_layer(service: Service, layer: int | None) -> None:
    lineage = service.reranker.store.lineage
    if layer is not None and not 0 <= layer < lineage.storage.exit_layer:
        held = f"0 to {lineage.storage.exit_layer - 1}"
        raise ApiError(
            422, "not_possible", f"layer {layer} of a store that holds layers {held}; ask for one of these"
        )


def _require_few_candidates(service: Service, count: int) -> None:
    limit = service.settings.limits.candidates
    if count > limit:
        raise ApiError(
            422, "too_many_candidates", f"{count} candidates, more than the {limit} this server ranks at once"
        )
