"""Answers to rerank requests in the shapes of Cohere, Jina, vLLM and TEI, and errors in theirs.

By default an answer has the fields of all of them. What cannot be had at once (a `document` that is a text or
an object, a status for what is refused, the shape of an error) follows `ServeSettings.dialect`.
"""

import math
import sys
import uuid
from collections import defaultdict
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel

from ridgerank.records import Ranking, to_json
from ridgerank.reranker.candidates import CandidateList
from ridgerank.serving.documents import RequestDocuments, take_apart
from ridgerank.serving.engine import RankingResult
from ridgerank.serving.metrics import step_times, weight_source
from ridgerank.serving.schemas import (
    Document,
    FieldError,
    Meta,
    PartsDocument,
    RerankRequest,
    RerankResponse,
    RerankResult,
    ScoreRequest,
    TeiResult,
    Usage,
)
from ridgerank.serving.service import Service
from ridgerank.serving.settings import Dialect

_TOO_LONG = "Please reduce the length of the input prompt."
"""What vLLM's clients look for."""
_TEI_TYPES = {400: "Empty", 429: "Overloaded", 500: "Backend", 503: "Unhealthy"}


def error_answer(
    dialect: Dialect,
    status: int,
    code: str,
    message: str,
    *,
    fields: list[FieldError] | None = None,
    too_long: bool = False,
) -> tuple[int, dict[str, Any]]:
    """Status and body of an error; `too_long` if a text exceeds what the server reads."""
    if dialect == "vllm":
        status = 400 if status in (409, 422) else status
        kind = HTTPStatus(status).phrase if fields else f"{HTTPStatus(status).phrase.replace(' ', '')}Error"
        text = f"{message}. {_TOO_LONG}" if too_long else message
        param = fields[0].field if fields else None
        return status, {"error": {"message": text, "type": kind, "param": param, "code": status}}
    if dialect == "tei":
        return status, {"error": message, "error_type": _TEI_TYPES.get(status, "Validation")}
    shown = [field.model_dump() for field in fields or []]
    return status, {"message": message, "code": code, "fields": shown}


def rerank_answer(
    service: Service,
    result: RankingResult,
    request: RerankRequest,
    documents: RequestDocuments,
    page_ids: Sequence[str],
    *,
    version: str,
) -> RerankResponse | list[TeiResult] | dict[str, Any]:
    """The answer to a request: TEI's if it has `texts` and calls no version, else as the dialect has it.

    `page_ids` has the page of each document, in the order of the request.
    """
    response = _rerank_response(service, result, request, documents, page_ids, version=version or "1")
    if request.texts is not None and not version:
        return [_tei_result(each, request, documents) for each in response.results]
    if service.settings.dialect != "vllm":
        return response
    answer = response.model_dump()
    for each in answer["results"]:
        each["document"] = _vllm_document(request.sent_documents[each["index"]])
    return answer


def answer_headers(ranking: Ranking) -> dict[str, str]:
    """What an answer without room for it says in its headers: whether it was reranked, and why not."""
    reasons = "; ".join(ranking.reasons).encode("ascii", "replace").decode()
    return {"X-Reranked": str(ranking.reranked).lower(), "X-Reasons": reasons}


def token_usage(service: Service, *lists: CandidateList) -> Usage:
    """The tokens that ran: those of each query, once per page."""
    tokens = service.backbone.tokens
    total = sum(len(tokens.suffix(candidates.query)) * len(candidates.page_ids) for candidates in lists)
    return Usage(prompt_tokens=total, total_tokens=total)


def foreign_warnings(service: Service, request: RerankRequest | ScoreRequest) -> list[str]:
    """What of a request this server does not use: another model's name, fields of other servers."""
    warnings = []
    if request.model not in (None, service.model, "ridgerank"):
        warnings.append(f"model {request.model!r} was asked for; this server ranks with {service.model!r}")
    if unused := request.unused_fields():
        warnings.append(f"not used: {', '.join(unused)} (a page is read whole, as it was stored)")
    return warnings


def _rerank_response(
    service: Service,
    result: RankingResult,
    request: RerankRequest,
    documents: RequestDocuments,
    page_ids: Sequence[str],
    *,
    version: str,
) -> RerankResponse:
    """Every document with its rank; documents of one page share its score and stand together."""
    ranking, scored = result.ranking, result.candidates.scored
    indices: dict[str, list[int]] = defaultdict(list)  # page id → its documents
    for index, page_id in enumerate(page_ids):
        indices[page_id].append(index)
    return_documents = request.return_documents or request.return_text
    score_of = _log_odds if request.use_activation is False else float
    results = [
        RerankResult(
            index=index,
            relevance_score=score_of(page.relevance_score),
            document=documents.returned[index] if return_documents else None,
            page_id=page.page_id,
            # Of an attachment, its position in the request.
            reference=f"documents[{index}]"
            if documents.names[index] in documents.attachments
            else page.reference,
            fused_score=page.fused_score,
            retriever_score=page.retriever_score if scored else None,
            readout_score=to_json(page.readout_score),
        )
        for page in ranking.pages
        for index in indices[page.page_id]
    ]
    warnings = [*ranking.reasons, *foreign_warnings(service, request)]
    return RerankResponse(
        id=request.request_id or uuid.uuid4().hex,
        model=service.model,
        results=results[: request.top_n or None],
        usage=token_usage(service, result.candidates),
        meta=Meta(api_version={"version": version}, warnings=warnings),
        weight=ranking.weight,
        weight_source=weight_source(result.candidates),
        reranked=ranking.reranked,
        reasons=list(ranking.reasons),
        latency_ms=step_times(result),
    )


def _tei_result(result: RerankResult, request: RerankRequest, documents: RequestDocuments) -> TeiResult:
    returned = documents.returned[result.index]
    text = returned.text if returned.text is not None else returned.page
    return TeiResult(
        index=result.index,
        score=result.fused_score if request.raw_scores else result.relevance_score,
        text=text if request.return_text else None,
    )


def _vllm_document(document: Document) -> dict[str, Any]:
    if isinstance(document, PartsDocument):
        parts = [part.model_dump(exclude_none=True) for part in document.content]
        return {"text": None, "multi_modal": parts}
    if isinstance(document, BaseModel):
        taken = take_apart(document)
        return {"text": taken.text or next(iter(taken.page_names), None), "multi_modal": None}
    return {"text": document, "multi_modal": None}


def _log_odds(score: float) -> float:
    score = min(max(score, sys.float_info.epsilon), 1 - sys.float_info.epsilon)
    return math.log(score) - math.log1p(-score)
