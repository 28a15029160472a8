"""Judging pages in the browser; a server takes judgements only where it was started with --judge."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Request

from ridgerank.errors import QueryError
from ridgerank.queries import validate_query
from ridgerank.serving.http_errors import ApiError, page_not_found
from ridgerank.serving.jobs import SearchWork
from ridgerank.serving.judging import Judging
from ridgerank.serving.routes.error_responses import MODEL_ROUTE, error_responses
from ridgerank.serving.routes.search_links import JUDGE
from ridgerank.serving.schemas.judgement_schemas import JudgementRequest, JudgementsResponse
from ridgerank.serving.schemas.shared_schemas import QueryText
from ridgerank.serving.service import Service


def judgement_router(service: Service) -> APIRouter:
    """The routes of one service's judgements."""
    routes = APIRouter(prefix="/v1/judgements", responses=error_responses(*MODEL_ROUTE))

    @routes.get("", summary="Judgements, and what they make of the weight")
    async def judgements(
        query: Annotated[QueryText, Query()], judge: Annotated[str, Query(max_length=60)] = ""
    ) -> JudgementsResponse:
        """The judgements of one query, the weight with all of them, and what to judge next."""
        return await asyncio.to_thread(_judging(service).report, query.strip(), judge.strip())

    @routes.post("", summary="Judge a page", operation_id=JUDGE)
    async def judge(request: Request, body: JudgementRequest) -> JudgementsResponse:
        """Keep a judgement beside the store, or take one back; it is on disk when this answers."""
        judging = _judging(service)
        try:
            query = validate_query(body.query)
        except QueryError as error:
            raise ApiError(422, "bad_query", str(error)) from error
        page_id = await asyncio.to_thread(service.reranker.store.lookup, body.page)
        if page_id is None:
            raise page_not_found(body.page)
        if not await asyncio.to_thread(judging.knows, query):
            work = SearchWork(query, service.reranker.calibration.diagnostics.candidates)
            [result] = await service.rank(request, [work], deadline_ms=body.deadline_ms)
            await asyncio.to_thread(judging.keep_list, result.ranking)
        try:
            await asyncio.to_thread(judging.keep, query, page_id, body.grade, body.judge)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ApiError(409, "read_only", f"the judgement could not be kept: {reason}") from error
        return await asyncio.to_thread(judging.report, query, body.judge)

    return routes


def _judging(service: Service) -> Judging:
    if service.judging is None:
        raise ApiError(
            409, "judging_off", "this server takes no judgements; start it with `ridgerank serve --judge`"
        )
    return service.judging
