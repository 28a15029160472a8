"""Rankings, store and calibration as responses of the API."""

import math
import sys
import uuid
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict

from ridgerank.calibration.queries import queries_from_texts
from ridgerank.records import RankedPage, Ranking
from ridgerank.reranker.candidates import CandidateList
from ridgerank.reranker.reranker import Reranker
from ridgerank.serving.jobs import RankingResult
from ridgerank.serving.judging import choose_evenly
from ridgerank.serving.matching_line import find_matching_line
from ridgerank.serving.request_documents import RequestDocuments
from ridgerank.serving.schemas.info_schemas import (
    CalibrationResponse,
    StoreResponse,
    WeightReport,
)
from ridgerank.serving.schemas.rerank_schemas import (
    ApiVersion,
    Meta,
    RerankRequest,
    RerankResponse,
    RerankResult,
    TeiResult,
)
from ridgerank.serving.schemas.score_schemas import ScoreRequest
from ridgerank.serving.schemas.search_schemas import LineReport, SearchResponse, SearchResult
from ridgerank.serving.schemas.shared_schemas import LatencyMs, Usage, WeightSource
from ridgerank.serving.service import Service, base_name

_EXAMPLES = 3
_EXAMPLE_PAGES = 40
_EXAMPLE_CHARACTERS = 120


def search_response(
    service: Service, result: RankingResult, *, top_n: int, lines: Mapping[str, LineReport | None]
) -> SearchResponse:
    """The best pages of a search, with both standardized scores, so that a caller can use another weight.

    `lines` has the line to show of each page, where these are wanted.
    """
    ranking = result.ranking
    return SearchResponse(
        id=uuid.uuid4().hex,
        model=service.model,
        query=ranking.query,
        weight=ranking.weight,
        weight_source=_weight_source(result.candidates),
        note=ranking.note,
        results=[
            SearchResult(
                rank=page.rank,
                retriever_rank=page.retriever_rank,
                page_id=page.page_id,
                reference=page.reference,
                relevance_score=page.relevance_score,
                fused_score=page.fused_score,
                retriever_score=page.retriever_score,
                readout_score=page.readout_score,
                retriever_z=page.retriever_z,
                readout_z=page.readout_z,
                image_url=f"/v1/pages/{page.page_id}/image",
                thumbnail_url=f"/v1/pages/{page.page_id}/thumbnail",
                reason=page.reason,
                line=lines.get(page.page_id),
            )
            for page in ranking.pages[:top_n]
        ],
        latency_ms=_latency(result),
    )


def matching_lines(service: Service, ranking: Ranking, *, top_n: int) -> dict[str, LineReport | None]:
    """Page id → the line that matches the query best. It reads the store: call it outside the event loop."""
    page_ids = [page.page_id for page in ranking.pages[:top_n]]
    pages = service.reranker.store.pages(page_ids) if page_ids else []
    matched = {page.page_id: find_matching_line(page.text, ranking.query) for page in pages}
    return {
        page_id: None if line is None else LineReport(text=line.text, marks=list(line.marks))
        for page_id, line in matched.items()
    }


def rerank_response(
    service: Service,
    result: RankingResult,
    request: RerankRequest,
    documents: RequestDocuments,
    *,
    version: str,
) -> RerankResponse:
    """Every document with its rank; documents of one page share its score and stand together."""
    ranking, scored = result.ranking, result.candidates.scored
    indices: dict[str, list[int]] = defaultdict(list)  # page id → its documents
    for index, page_id in enumerate(result.document_page_ids):
        indices[page_id].append(index)
    return_documents = request.return_documents or request.return_text
    score_of = _log_odds if request.use_activation is False else float
    results = [
        RerankResult(
            index=index,
            relevance_score=score_of(page.relevance_score),
            document=documents.returned[index] if return_documents else None,
            page_id=page.page_id,
            reference=_reference(page, documents, index),
            fused_score=page.fused_score,
            retriever_score=page.retriever_score if scored else None,
            readout_score=page.readout_score,
        )
        for page in ranking.pages
        for index in indices[page.page_id]
    ]
    warnings = [*([ranking.note] if ranking.note else []), *foreign_warnings(service, request)]
    return RerankResponse(
        id=request.request_id or uuid.uuid4().hex,
        model=service.model,
        results=results[: request.top_n or None],
        usage=token_usage(service, result.candidates),
        meta=Meta(api_version=ApiVersion(version=version), warnings=warnings),
        weight=ranking.weight,
        weight_source=_weight_source(result.candidates),
        note=ranking.note,
        latency_ms=_latency(result),
    )


def tei_results(
    response: RerankResponse, request: RerankRequest, documents: RequestDocuments
) -> list[TeiResult]:
    """The results of a rerank request in TEI's shape."""
    return [
        TeiResult(
            index=result.index,
            score=result.fused_score if request.raw_scores else result.relevance_score,
            text=_tei_text(documents, result.index) if request.return_text else None,
        )
        for result in response.results
    ]


def token_usage(service: Service, *lists: CandidateList) -> Usage:
    """The tokens that ran: those of each query, once per page."""
    tokens = service.reranker.backbone.tokens
    total = sum(len(tokens.suffix(candidates.query)) * len(candidates.page_ids) for candidates in lists)
    return Usage(prompt_tokens=total, total_tokens=total)


def store_response(service: Service) -> StoreResponse:
    """Size and lineage of the store, without its path."""
    info = service.reranker.store.info()
    lineage = asdict(info.lineage)
    return StoreResponse(
        name=base_name(info.uri),
        pages=info.pages,
        prefix_bytes=info.prefix_bytes,
        bytes_per_page=info.bytes_per_page,
        lineage={**lineage, "backbone": base_name(lineage["backbone"])},
        retriever=None if service.retriever is None else base_name(service.retriever),
        encodes_missing=service.settings.encode_missing,
        reads_text=service.reranker.backbone.reads_text,
        current=service.reranker.store.is_current(),
        judging=service.judging is not None,
        examples=example_queries(service.reranker),
        labels=service.reranker.store.label_examples(),
    )


def calibration_response(service: Service) -> CalibrationResponse:
    """The calibration's report."""
    calibration = service.reranker.calibration
    report = calibration.facts()
    diagnostics = dict(report["diagnostics"])
    label_free, closed_form = diagnostics.pop("label_free"), diagnostics.pop("closed_form")
    diagnostics.pop("paper_label_free")
    diagnostics["queries_from"] = base_name(diagnostics["queries_from"])
    return CalibrationResponse(
        name=service.readout,
        retriever=base_name(calibration.retriever),
        target=calibration.target,
        state=calibration.state,
        penalty=report["penalty"],
        weight=WeightReport(**report["weight"]),
        label_free=WeightReport(**label_free),
        closed_form=None if closed_form is None else WeightReport(**closed_form),
        **diagnostics,
    )


def example_queries(reranker: Reranker) -> list[str]:
    """Three queries to try: some that the calibration was made with, or made from the first pages' text."""
    lists = reranker.calibration.lists
    if lists is not None:
        short = [query.text for query in lists.queries if len(query.text) <= _EXAMPLE_CHARACTERS]
        return choose_evenly(short or [query.text for query in lists.queries], _EXAMPLES)
    pages = reranker.store.pages(reranker.store.page_ids()[:_EXAMPLE_PAGES])
    queries, _ = queries_from_texts({page.page_id: page.text for page in pages}, _EXAMPLES)
    return [query.text for query in queries]


def _weight_source(candidates: CandidateList) -> WeightSource:
    return "calibration" if candidates.scored else "readout_alone"


def _reference(page: RankedPage, documents: RequestDocuments, index: int) -> str:
    """The page's name; of an attachment, its position in the request."""
    return f"documents[{index}]" if documents.names[index] in documents.attachments else page.reference


def _tei_text(documents: RequestDocuments, index: int) -> str | None:
    document = documents.returned[index]
    return document.text if document.text is not None else document.page


def _latency(result: RankingResult) -> LatencyMs:
    latency = result.ranking.latency
    return LatencyMs(
        queue=result.queue_ms,
        retrieval=latency.retrieval_ms,
        reading=latency.reading_ms,
        compute=latency.compute_ms,
        ranking=latency.ranking_ms,
    )


def foreign_warnings(service: Service, request: RerankRequest | ScoreRequest) -> list[str]:
    """What of a request this server does not use: another model's name, fields of other servers."""
    warnings = []
    if request.model not in (None, service.model, "ridgerank"):
        warnings.append(f"model {request.model!r} was asked for; this server ranks with {service.model!r}")
    if unused := request.unused_fields():
        warnings.append(f"not used: {', '.join(unused)} (a page is read whole, as it was stored)")
    return warnings


def _log_odds(score: float) -> float:
    score = min(max(score, sys.float_info.epsilon), 1 - sys.float_info.epsilon)
    return math.log(score) - math.log1p(-score)
