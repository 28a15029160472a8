"""What can be done with a page that a search found, for the OpenAPI document: the calls that come next."""

from typing import Any

PAGE_IMAGE = "page_image"
PAGE_THUMBNAIL = "page_thumbnail"
EXPLAIN = "explain"
JUDGE = "judge"

_FIRST_PAGE = "$response.body#/results/0/page_id"
_QUERY_AND_PAGE = {"query": "$response.body#/query", "page": _FIRST_PAGE}

SEARCH_LINKS: dict[int | str, dict[str, Any]] = {
    200: {
        "links": {
            "image": {"operationId": PAGE_IMAGE, "parameters": {"page_id": _FIRST_PAGE}},
            "thumbnail": {"operationId": PAGE_THUMBNAIL, "parameters": {"page_id": _FIRST_PAGE}},
            "explanation": {"operationId": EXPLAIN, "requestBody": _QUERY_AND_PAGE},
            "judgement": {"operationId": JUDGE, "requestBody": {**_QUERY_AND_PAGE, "grade": 1}},
        }
    }
}
"""The `responses` of a search."""
