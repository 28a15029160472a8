"""Rerank, score, search, explain: what needs the model."""

import time
import uuid
from collections.abc import Callable
from dataclasses import asdict

from fastapi import APIRouter, Request

from ridgerank.ranking.candidates import CandidateList
from ridgerank.serving.engine import Call, Rank, Search, Served
from ridgerank.serving.http_errors import Refusal, no_such_page
from ridgerank.serving.request_pages import Offer, Pages, read_offer
from ridgerank.serving.responses import rerank_answer, search_answer, sent_text, usage
from ridgerank.serving.routes.error_responses import MODEL, errors
from ridgerank.serving.schemas.document_schemas import Document
from ridgerank.serving.schemas.rerank_schemas import RerankAnswer, RerankRequest, TeiResult
from ridgerank.serving.schemas.score_schemas import ScoreAnswer, Scored, ScoreRequest
from ridgerank.serving.schemas.search_schemas import (
    ExplainAnswer,
    ExplainRequest,
    SearchAnswer,
    SearchRequest,
)
from ridgerank.serving.service import Service


def router(service: Service) -> APIRouter:
    """The paths of one service."""
    routes = APIRouter(responses=errors(*MODEL))

    @routes.post("/rerank", summary="Rerank (Jina, vLLM; TEI where the request has texts)")
    async def rerank(request: Request, wanted: RerankRequest) -> RerankAnswer | list[TeiResult]:
        """Put documents in order. With `texts` the answer has TEI's shape."""
        answer, offer = await _rerank(service, request, wanted, version="1")
        if wanted.texts is None:
            return answer
        return [
            TeiResult(
                index=one.index,
                score=one.fused_score if wanted.raw_scores else one.relevance_score,
                text=sent_text(offer.sent[one.index]) if wanted.return_text else None,
            )
            for one in answer.results
        ]

    @routes.post("/v1/rerank", summary="Rerank (Cohere v1, Jina, vLLM)")
    async def rerank_v1(request: Request, wanted: RerankRequest) -> RerankAnswer:
        """Put documents in order."""
        return (await _rerank(service, request, wanted, version="1"))[0]

    @routes.post("/v2/rerank", summary="Rerank (Cohere v2)")
    async def rerank_v2(request: Request, wanted: RerankRequest) -> RerankAnswer:
        """Put documents in order."""
        return (await _rerank(service, request, wanted, version="2"))[0]

    @routes.post("/v1/score", summary="Score pairs (vLLM)")
    async def score(request: Request, wanted: ScoreRequest) -> ScoreAnswer:
        """The readout score of each pair of query and document: no retriever, nothing standardized."""
        return await _score(service, request, wanted)

    @routes.post("/v1/search", summary="Retrieve and rerank")
    async def search(request: Request, wanted: SearchRequest) -> SearchAnswer:
        """Let the retriever find k pages, rerank them, return the best."""
        _require_few(service, wanted.k)
        if service.retriever is None:
            raise Refusal(
                409,
                "no_retriever",
                "this server has no retriever to search with; send candidates to /v1/rerank",
            )
        work = Search(wanted.query, wanted.k)
        [served] = await service.run(request, [work], deadline_ms=wanted.deadline_ms)
        return search_answer(service, served, top_n=wanted.top_n)

    @routes.post("/v1/explain", summary="Where a query looked on a page")
    async def explain(request: Request, wanted: ExplainRequest) -> ExplainAnswer:
        """The attention of the query's last state on the page's stored positions."""
        page_id = service.reranker.store.lookup(wanted.page)
        if page_id is None:
            raise no_such_page(wanted.page)
        work = Call(lambda: service.reranker.explain(wanted.query, page_id, layer=wanted.layer))
        [served] = await service.run(request, [work], deadline_ms=wanted.deadline_ms)
        if served.explanation is None:
            raise TypeError("an explanation was asked for and none was given")
        return ExplainAnswer(**asdict(served.explanation))

    return routes


async def _rerank(
    service: Service, request: Request, wanted: RerankRequest, *, version: str
) -> tuple[RerankAnswer, Offer]:
    documents: list[Document] = list(wanted.documents or wanted.texts or [])
    _require_few(service, len(documents))
    offer = read_offer(documents, service.reranker.store, service.settings)
    given = wanted.retriever_scores
    alone = given is None and (service.retriever is None or bool(offer.attached))
    page_ids: dict[str, str] = {}
    work = Rank(_preparing(service, wanted.query, offer, page_ids, scores=given, alone=alone))
    [served] = await service.run(request, [work], deadline_ms=wanted.deadline_ms)
    return rerank_answer(service, served, wanted, offer, page_ids, version=version), offer


async def _score(service: Service, request: Request, wanted: ScoreRequest) -> ScoreAnswer:
    queries = [wanted.queries] if isinstance(wanted.queries, str) else wanted.queries
    documents = wanted.documents if isinstance(wanted.documents, list) else [wanted.documents]
    if len(queries) not in (1, len(documents)):
        raise Refusal(
            422,
            "invalid_request",
            f"{len(queries)} queries for {len(documents)} documents; wanted one query, or one each",
        )
    _require_few(service, len(documents))
    offer = read_offer(documents, service.reranker.store, service.settings)
    places: dict[str, list[int]] = {}
    for place in range(len(documents)):
        places.setdefault(queries[place if len(queries) > 1 else 0], []).append(place)
    page_ids: dict[str, str] = {}
    works = [
        Rank(_preparing(service, query, _part(offer, own), page_ids, scores=None, alone=True))
        for query, own in places.items()
    ]
    served = await service.run(request, works, deadline_ms=wanted.deadline_ms)
    scores = [0.0] * len(documents)
    for own, one in zip(places.values(), served, strict=True):
        by_page = {page.page_id: page.readout_score for page in one.ranking.pages} if one.ranking else {}
        for place in own:
            name = offer.names[place]
            scores[place] = by_page[page_ids.get(name, name)]
    return ScoreAnswer(
        id=uuid.uuid4().hex,
        created=int(time.time()),
        model=service.model,
        data=[Scored(index=place, score=score) for place, score in enumerate(scores)],
        usage=usage(service, *(_prepared(one) for one in served)),
    )


def _preparing(
    service: Service,
    query: str,
    offer: Offer,
    page_ids: dict[str, str],
    *,
    scores: list[float] | None,
    alone: bool,
) -> Callable[[Callable[[], None]], CandidateList]:
    def prepare(go_on: Callable[[], None]) -> CandidateList:
        pages = Pages(
            offer.attached,
            go_on,
            max_pixels=service.reranker.backbone.max_pixels,
            image_pixels=service.settings.limits.image_pixels,
            page_ids=page_ids,
        )
        return service.reranker.prepare(
            query,
            offer.candidates(scores),
            encode_missing=pages if offer.attached else None,
            weight=1.0 if alone else None,
        )

    return prepare


def _part(offer: Offer, places: list[int]) -> Offer:
    """The documents at some places."""
    names = tuple(offer.names[place] for place in places)
    attached = {name: offer.attached[name] for name in names if name in offer.attached}
    return Offer(names, attached, tuple(offer.sent[place] for place in places))


def _prepared(served: Served) -> CandidateList:
    if served.prepared is None:
        raise TypeError("a piece of work that ranks nothing was answered as a ranking")
    return served.prepared


def _require_few(service: Service, count: int) -> None:
    limit = service.settings.limits.candidates
    if count > limit:
        raise Refusal(
            422, "too_many_candidates", f"{count} candidates, more than the {limit} this server ranks at once"
        )
