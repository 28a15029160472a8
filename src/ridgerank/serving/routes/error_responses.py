"""The errors that a path may answer with, for the OpenAPI document."""

from typing import Any

from ridgerank.serving.schemas.error_schemas import ErrorResponse

_MEANINGS = {
    400: "Not JSON, or no request at all.",
    401: "No valid key.",
    404: "No such page.",
    408: "The request's own deadline passed.",
    409: "This server cannot do that: it has no retriever, or its model reads text.",
    413: "More than the server takes at once.",
    421: "Called under another name than the server's own.",
    422: "Not as wanted; `fields` names what is wrong.",
    429: "As many requests as the server takes are being worked on; `Retry-After` says when to come back.",
    503: "Shutting down, or no answer within the server's limit.",
}
ANY_ROUTE = (400, 401, 421)
MODEL_ROUTE = (*ANY_ROUTE, 404, 408, 409, 413, 422, 429, 503)


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that may answer with these statuses."""
    return {status: {"model": ErrorResponse, "description": _MEANINGS[status]} for status in statuses}
