"""The files of the web page, served under `/`, `/docs` and `/page/`, and no others.

No request names a file: each address is a route of its own, made once from the list below. The page loads
nothing from elsewhere and runs no inline script; its Content-Security-Policy forbids both.
"""

from collections.abc import Callable
from importlib.resources import files

from fastapi import FastAPI
from fastapi.responses import Response

CONTENT_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
ADDRESSES = {"index.html": "/", "docs.html": "/docs"}
"""Documents; all other files lie under `/page/`."""
FILES = (
    "api.js",
    "charts.js",
    "columns.js",
    "docs.css",
    "docs.js",
    "dom.js",
    "filter.js",
    "heat.js",
    "icon.svg",
    "judge.css",
    "judge.js",
    "moves.js",
    "page.css",
    "page.js",
    "preview.js",
    "ranking.js",
    "report.css",
    "report.js",
    "results.css",
    "theme.js",
    "viewer.css",
    "viewer.js",
)
PATHS = frozenset({*ADDRESSES.values(), *(f"/page/{name}" for name in FILES)})
"""Served without a key, because they hold nothing of the store."""
HEADERS = {
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self' blob:",  # a page's image that had to be fetched with a key is a blob
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        )
    ),
    "Cache-Control": "no-cache",  # a newer server has a newer page
}


def add_static_routes(app: FastAPI) -> None:
    """Serve the page at `/`, the API's documentation at `/docs`, and their files below `/page/`."""
    folder = files("ridgerank.serving") / "static"
    for name in (*ADDRESSES, *FILES):
        address = ADDRESSES.get(name, f"/page/{name}")
        endpoint = _file_endpoint((folder / name).read_bytes(), CONTENT_TYPES[name.rpartition(".")[2]])
        app.add_api_route(address, endpoint, methods=["GET", "HEAD"], include_in_schema=False, name=name)


def _file_endpoint(content: bytes, content_type: str) -> Callable[[], Response]:
    def send_file() -> Response:
        return Response(content, media_type=content_type, headers=HEADERS)

    return send_file
