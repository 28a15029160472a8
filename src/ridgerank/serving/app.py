"""The HTTP application: routes over one `Service`, and the web page. No globals: a process may hold several.

The files of the page lie under `/` and `/page/`. No request names a file: each address is a route of its own,
made once from the folder. The page loads nothing from elsewhere and runs no inline script; its
Content-Security-Policy forbids both.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.resources import files

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from ridgerank.serving.dialects import error_answer
from ridgerank.serving.http_errors import ApiError
from ridgerank.serving.middleware import DOCS_PATH, BodyRefused, RequestMiddleware
from ridgerank.serving.routes import make_router
from ridgerank.serving.schemas import FieldError
from ridgerank.serving.service import Service
from ridgerank.serving.settings import Dialect
from ridgerank.version import __version__

_MESSAGES = {404: "no such path; /openapi.json lists those there are", 405: "this path has other methods"}
_CODES = {404: "no_such_path", 405: "no_such_method"}
_SHOWN_FIELDS = 10
_CONTENT_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_PAGE_HEADERS = {
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


def create_app(service: Service, *, close: bool = True, close_seconds: float = 10.0) -> FastAPI:
    """Make the application; it closes the service when it shuts down, unless `close` is false.

    Admitted requests then have `close_seconds` to finish.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        if close:
            service.close(seconds=close_seconds)

    app = FastAPI(
        title="RidgeRank",
        version=__version__,
        description="Visual document reranking behind the rerank API of existing clients.",
        lifespan=lifespan,
        docs_url=DOCS_PATH,
        redoc_url=None,
        root_path_in_servers=False,  # a caller's path may name a store, and would be kept there
    )
    app.state.dialect = service.settings.dialect
    app.include_router(make_router(service))
    page_files = _add_page(app)
    app.add_exception_handler(ApiError, _answer_api_error)
    app.add_exception_handler(RequestValidationError, _answer_validation_error)
    app.add_exception_handler(HTTPException, _answer_http_exception)
    app.add_middleware(RequestMiddleware, service=service, open_paths=page_files)
    return app


def _add_page(app: FastAPI) -> frozenset[str]:
    """Serve the files of the page; their addresses, which hold nothing of the store and need no key."""
    addresses = set()
    for file in (files("ridgerank.serving") / "static").iterdir():
        kind = file.name.rpartition(".")[2]
        if kind not in _CONTENT_TYPES:
            continue
        address = "/" if file.name == "index.html" else f"/page/{file.name}"
        endpoint = _file_endpoint(file.read_bytes(), _CONTENT_TYPES[kind])
        app.add_api_route(address, endpoint, methods=["GET", "HEAD"], include_in_schema=False, name=file.name)
        addresses.add(address)
    return frozenset(addresses)


def _file_endpoint(content: bytes, content_type: str) -> Callable[[], Response]:
    def send_file() -> Response:
        return Response(content, media_type=content_type, headers=_PAGE_HEADERS)

    return send_file


def _error_response(
    request: Request,
    status: int,
    code: str,
    message: str,
    *,
    fields: list[FieldError] | None = None,
    too_long: bool = False,
    headers: dict[str, str] | None = None,
) -> JSONResponse:
    dialect: Dialect = request.app.state.dialect
    answered, body = error_answer(dialect, status, code, message, fields=fields, too_long=too_long)
    return JSONResponse(body, answered, headers=headers)


async def _answer_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)  # what it is registered for
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    return _error_response(request, error.status, error.code, error.message, headers=headers)


async def _answer_validation_error(request: Request, error: Exception) -> Response:
    """Name the fields that are wrong; their values are not sent back: they may be large."""
    assert isinstance(error, RequestValidationError)  # what it is registered for
    problems = error.errors()
    fields = [
        FieldError(
            field=".".join(str(part) for part in problem["loc"])[:200],
            message=str(problem["msg"]).removeprefix("Value error, ")[:200],
        )
        for problem in problems[:_SHOWN_FIELDS]
    ]
    message = f"the request is not as expected; {fields[0].field}: {fields[0].message}"
    too_long = any(problem["type"] == "string_too_long" for problem in problems)
    return _error_response(request, 422, "invalid_request", message, fields=fields, too_long=too_long)


async def _answer_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # what it is registered for
    message = _MESSAGES.get(error.status_code, str(error.detail))
    code = error.code if isinstance(error, BodyRefused) else _CODES.get(error.status_code, "bad_request")
    return _error_response(request, error.status_code, code, message, headers=dict(error.headers or {}))
