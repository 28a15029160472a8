"""The HTTP application: routes over one `Service`. No globals: a process may hold several.

app = create_app(Service.open("pages", Settings()))
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from ridgerank.serving import static_files
from ridgerank.serving.http_errors import Refusal
from ridgerank.serving.middleware import Gate
from ridgerank.serving.routes import image_routes, info_routes, ranking_routes
from ridgerank.serving.schemas.error_schemas import ErrorAnswer, FieldError
from ridgerank.serving.service import Service
from ridgerank.version import __version__

_MESSAGES = {404: "no such path; /openapi.json lists those there are", 405: "this path has other methods"}
_CODES = {404: "no_such_path", 405: "no_such_method", 413: "too_large"}
_SHOWN_FIELDS = 10


def create_app(service: Service, *, close: bool = True) -> FastAPI:
    """Make the application; at the end of its life it closes the service, unless told to leave it."""

    @asynccontextmanager
    async def living(app: FastAPI) -> AsyncIterator[None]:
        yield
        if close:
            service.close()

    app = FastAPI(
        title="RidgeRank",
        version=__version__,
        description="Visual document reranking behind the rerank API people already call.",
        lifespan=living,
        docs_url=None,  # it would load its scripts from elsewhere
        redoc_url=None,
    )
    app.include_router(ranking_routes.router(service))
    app.include_router(image_routes.router(service))
    app.include_router(info_routes.router(service))
    static_files.mount(app)
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _plain)
    app.add_middleware(
        Gate,
        engine=service.engine,
        settings=service.settings,
        metrics=service.metrics,
        open_paths=static_files.PATHS,
    )
    return app


def _error(
    status: int, code: str, message: str, *, fields: list[FieldError] | None = None, headers: dict[str, str]
) -> JSONResponse:
    answer = ErrorAnswer(message=message, code=code, fields=fields or [])
    return JSONResponse(answer.model_dump(), status, headers=headers)


async def _refused(request: Request, error: Exception) -> Response:
    if not isinstance(error, Refusal):
        raise error
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    return _error(error.status, error.code, error.message, headers=headers)


async def _invalid(request: Request, error: Exception) -> Response:
    """Name the fields that are wrong; what was sent is not sent back: it may be large, or no JSON."""
    if not isinstance(error, RequestValidationError):
        raise error
    wrong = [
        FieldError(
            field=".".join(str(part) for part in one["loc"])[:200],
            message=str(one["msg"]).removeprefix("Value error, ")[:200],
        )
        for one in error.errors()[:_SHOWN_FIELDS]
    ]
    message = f"the request is not as wanted; {wrong[0].field}: {wrong[0].message}"
    return _error(422, "invalid_request", message, fields=wrong, headers={})


async def _plain(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    message = _MESSAGES.get(error.status_code, str(error.detail))
    headers = dict(error.headers or {})
    code = _CODES.get(error.status_code, "bad_request")
    return _error(error.status_code, code, message, headers=headers)
