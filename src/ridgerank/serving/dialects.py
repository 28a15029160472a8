"""Answers to the letter of another server, where such servers contradict each other; pure functions.

By default an answer has the fields of all of them. What cannot be had at once (a `document` that is a text or
an object, a status for what is refused, the shape of an error) follows `ServeSettings.dialect`.
"""

import time
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel

from ridgerank.serving.document_parts import take_apart
from ridgerank.serving.http_errors import ApiError
from ridgerank.serving.schemas.document_schemas import Document, PartsDocument
from ridgerank.serving.schemas.error_schemas import FieldError
from ridgerank.serving.schemas.rerank_schemas import RerankRequest, RerankResponse
from ridgerank.serving.serve_settings import Dialect

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
    """Status and body of an error; `too_long` where a text exceeds what the server reads."""
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


def check_request(dialect: Dialect, request: RerankRequest) -> None:
    """Refuse what the dialect's server refuses and others accept."""
    if dialect == "infinity" and request.top_n == 0:
        raise ApiError(422, "invalid_request", "top_n is 0; wanted 1 or more, or no top_n for all")


def rerank_answer(
    dialect: Dialect, response: RerankResponse, request: RerankRequest
) -> dict[str, Any] | None:
    """The answer where the dialect has a shape of its own, None where it is `response` itself."""
    documents = request.sent_documents
    if dialect == "vllm":
        answer = response.model_dump()
        for result in answer["results"]:
            result["document"] = _vllm_document(documents[result["index"]])
        return answer
    if dialect == "infinity":
        results: list[dict[str, Any]] = []
        for result in response.results:
            score = result.fused_score if request.raw_scores else result.relevance_score
            document = {"document": _text(documents[result.index])} if request.return_documents else {}
            results.append({"relevance_score": score, "index": result.index, **document})
        return {
            "object": "rerank",
            "results": results,
            "model": response.model,
            "usage": response.usage.model_dump(),
            "id": response.id,
            "created": int(time.time()),
        }
    return None


def _vllm_document(document: Document) -> dict[str, Any]:
    if isinstance(document, PartsDocument):
        parts = [part.model_dump(exclude_none=True) for part in document.content]
        return {"text": None, "multi_modal": parts}
    return {"text": _text(document), "multi_modal": None}


def _text(document: Document) -> str | None:
    if isinstance(document, BaseModel):
        parts = take_apart(document)
        return parts.text or next(iter(parts.page_names), None)
    return document
