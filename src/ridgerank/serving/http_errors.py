"""The errors of the API: a status, a code for programs, a message for people."""

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import PurePath
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from ridgerank.errors import BackboneError, DocumentError, QueryError, RidgeRankError, ScoreError
from ridgerank.serving.schemas import FieldError
from ridgerank.serving.settings import Dialect

_SHOWN_CHARACTERS = 80
_SHOWN_FIELDS = 10
_DOCUMENTS = ("documents", "items", "text_2", "data_2")
_KNOWN = {
    404: ("no_such_path", "no such path; /openapi.json lists those there are"),
    405: ("no_such_method", "this path has other methods"),
}
_CALLER_CODES: dict[type[RidgeRankError], str] = {
    QueryError: "bad_query",
    ScoreError: "bad_scores",
    DocumentError: "bad_document",
    BackboneError: "not_possible",
}
"""Errors that a request can cause. All others are the server's own."""
_TOO_LONG = "Please reduce the length of the input prompt."
"""What vLLM's clients look for."""
_TEI_TYPES = {400: "Empty", 429: "Overloaded", 500: "Backend", 503: "Unhealthy"}
_PATH = re.compile(
    r"(?:[a-z][a-z0-9+.-]*:/)?(?<![\w.])(?:\.{0,2}/)"
    r"(?:[^\s/'\"`][^/'\"`\n]*/)*[^\s/'\"`,;:()]+"
)
"""A folder may hold spaces, the last part may not: there a sentence goes on."""


class ApiError(Exception):
    """A request that gets an error as its answer."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        retry_after: int | None = None,
        fields: Sequence[FieldError] = (),
        too_long: bool = False,
    ) -> None:
        """`retry_after` is in seconds; `too_long` if a text exceeds what the server reads."""
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.retry_after, self.fields, self.too_long = retry_after, fields, too_long

    def answer(self, dialect: Dialect) -> tuple[int, dict[str, Any]]:
        """Status and body in a dialect."""
        status, message = self.status, self.message
        if dialect == "vllm":
            status = 400 if status in (409, 422) else status
            phrase = HTTPStatus(status).phrase
            kind = phrase if self.fields else f"{phrase.replace(' ', '')}Error"
            text = f"{message}. {_TOO_LONG}" if self.too_long else message
            param = self.fields[0].field if self.fields else None
            return status, {"error": {"message": text, "type": kind, "param": param, "code": status}}
        if dialect == "tei":
            return status, {"error": message, "error_type": _TEI_TYPES.get(status, "Validation")}
        shown = [field.model_dump() for field in self.fields]
        return status, {"message": message, "code": self.code, "fields": shown}


class BodyRefused(HTTPException):
    """A body that is not read on. Of all errors met while reading, FastAPI passes on only its own kind."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(status, message)
        self.code = code


def shutting_down() -> ApiError:
    """The server finishes what it has and takes nothing new."""
    return ApiError(503, "shutting_down", "the server is shutting down; ask another one", retry_after=5)


def page_not_found(name: str) -> ApiError:
    """A page the store does not have."""
    return ApiError(
        404, "page_not_found", f"no page {shorten_words(name)!r} in the store; name one that is indexed"
    )


def _name_problem(problem: Mapping[str, Any]) -> FieldError:
    """What is wrong where: a document by its index, whichever of its forms it was compared with."""
    where, message = problem["loc"], str(problem["msg"]).removeprefix("Value error, ")
    if len(where) > 2 and where[1] in _DOCUMENTS and not isinstance(where[2], int):
        index = next((f"[{part}]" for part in where if isinstance(part, int)), "")
        where, message = (f"{where[1]}{index}",), "expected a text, an image or the name of a stored page"
    return FieldError(field=".".join(map(str, where))[:200], message=message[:200])


def as_api_error(error: Exception) -> ApiError | None:
    """An error that a request caused, as the API has it; None where the fault is the server's own."""
    match error:
        case ApiError():
            return error
        case RequestValidationError():  # values are not sent back: they may be large
            problems = error.errors()
            named = dict.fromkeys(map(_name_problem, problems))  # a list is also compared with one document
            fields = sorted(named, key=lambda each: "[" not in each.field)[:_SHOWN_FIELDS]
            message = f"the request is not as expected; {fields[0].field}: {fields[0].message}"
            too_long = any(problem["type"] == "string_too_long" for problem in problems)
            return ApiError(422, "invalid_request", message, fields=fields, too_long=too_long)
        case BodyRefused():
            return ApiError(error.status_code, error.code, error.detail)
        case HTTPException():
            code, message = _KNOWN.get(error.status_code, ("bad_request", str(error.detail)))
            return ApiError(error.status_code, code, message)
    for kind, code in _CALLER_CODES.items():
        if isinstance(error, kind):
            return ApiError(422, code, hide_paths(str(error)))
    return None


def hide_paths(message: str) -> str:
    """A message in which paths are their last part: where things lie on the server is nobody's business."""
    return _PATH.sub(lambda path: PurePath(path[0]).name, message)


def shorten_words(name: str) -> str:
    """What a caller sent, short enough to be sent back."""
    return name if len(name) <= _SHOWN_CHARACTERS else f"{name[:_SHOWN_CHARACTERS]}…"
