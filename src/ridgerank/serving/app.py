"""The HTTP application: routes over one `Service`, and the web page. No globals: a process may hold several.

The web page loads nothing from elsewhere and runs no inline script; its Content-Security-Policy forbids both.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from ridgerank.errors import RidgeRankError
from ridgerank.serving.http_errors import ApiError, from_library_error
from ridgerank.serving.middleware import DOCS_PATH, BodyRefused, RequestMiddleware
from ridgerank.serving.routes import make_router
from ridgerank.serving.schemas import FieldError
from ridgerank.serving.service import Service
from ridgerank.version import __version__

_MESSAGES = {404: "no such path; /openapi.json lists those there are", 405: "this path has other methods"}
_CODES = {404: "no_such_path", 405: "no_such_method"}
_SHOWN_FIELDS = 10


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
    app.include_router(make_router(service))
    folder = Path(__file__).parent / "static"
    app.mount("/page", StaticFiles(directory=folder))
    app.add_api_route("/", lambda: FileResponse(folder / "index.html"), include_in_schema=False)
    # What these raise is answered by the middleware, as all errors are.
    app.add_exception_handler(RequestValidationError, _refuse_fields)
    app.add_exception_handler(HTTPException, _refuse)
    app.add_exception_handler(RidgeRankError, _refuse_what_a_request_caused)
    app.add_middleware(RequestMiddleware, service=service)
    return app


async def _refuse_fields(request: Request, error: Exception) -> Response:
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
    raise ApiError(422, "invalid_request", message, fields=fields, too_long=too_long)


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # what it is registered for
    message = _MESSAGES.get(error.status_code, str(error.detail))
    code = error.code if isinstance(error, BodyRefused) else _CODES.get(error.status_code, "bad_request")
    raise ApiError(error.status_code, code, message)


async def _refuse_what_a_request_caused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RidgeRankError)  # what it is registered for
    raise from_library_error(error) or error
