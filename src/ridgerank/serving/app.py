"""The HTTP application: routes over one `Service`. No globals: a process may hold several.

app = create_app(open_service("pages", RerankerOptions(), ServeSettings()))
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from ridgerank.serving import static_files
from ridgerank.serving.dialects import error_answer
from ridgerank.serving.http_errors import ApiError
from ridgerank.serving.middleware import RequestMiddleware
from ridgerank.serving.request_body import BodyRefused
from ridgerank.serving.request_log import RequestLog
from ridgerank.serving.routes import image_routes, info_routes, judgement_routes, ranking_routes
from ridgerank.serving.schemas.error_schemas import FieldError
from ridgerank.serving.serve_settings import Dialect
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
        docs_url=None,  # that page would load its scripts from elsewhere; /docs is in static/
        redoc_url=None,
    )
    app.state.dialect = service.settings.dialect
    app.include_router(ranking_routes.ranking_router(service))
    app.include_router(judgement_routes.judgement_router(service))
    app.include_router(image_routes.image_router(service))
    app.include_router(info_routes.info_router(service))
    static_files.add_static_routes(app)
    app.add_exception_handler(ApiError, _answer_api_error)
    app.add_exception_handler(RequestValidationError, _answer_validation_error)
    app.add_exception_handler(HTTPException, _answer_http_exception)
    app.add_middleware(
        RequestMiddleware,
        engine=service.engine,
        settings=service.settings,
        metrics=service.metrics,
        open_paths=static_files.PATHS,
    )
    app.add_middleware(RequestLog, tracing=service.tracing)
    return app


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
    if not isinstance(error, ApiError):
        raise error
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    return _error_response(request, error.status, error.code, error.message, headers=headers)


async def _answer_validation_error(request: Request, error: Exception) -> Response:
    """Name the fields that are wrong; their values are not sent back: they may be large, or no JSON."""
    if not isinstance(error, RequestValidationError):
        raise error
    problems = error.errors()
    fields = [
        FieldError(
            field=".".join(str(part) for part in problem["loc"])[:200],
            message=str(problem["msg"]).removeprefix("Value error, ")[:200],
        )
        for problem in problems[:_SHOWN_FIELDS]
    ]
    message = f"the request is not as wanted; {fields[0].field}: {fields[0].message}"
    too_long = any(problem["type"] == "string_too_long" for problem in problems)
    return _error_response(request, 422, "invalid_request", message, fields=fields, too_long=too_long)


async def _answer_http_exception(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    message = _MESSAGES.get(error.status_code, str(error.detail))
    code = error.code if isinstance(error, BodyRefused) else _CODES.get(error.status_code, "bad_request")
    return _error_response(request, error.status_code, code, message, headers=dict(error.headers or {}))
