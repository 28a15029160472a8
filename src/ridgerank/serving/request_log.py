"""Each request's id, its line in the log, and its span: the outermost layer, in plain ASGI."""

import json
import logging
import re
import time
import uuid
from contextvars import ContextVar
from datetime import UTC, datetime

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ridgerank.serving.tracing import Tracing

log = logging.getLogger(__name__)

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The id of the request that is worked on, in the task that works on it."""
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_FACTS = ("request_id", "trace_id", "method", "path", "status", "milliseconds")


class JsonFormatter(logging.Formatter):
    """A line of JSON per record: time, level, logger, message, request id and what the record has besides."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": moment,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        facts = {"request_id": request_id.get(), **{name: getattr(record, name, None) for name in _FACTS}}
        line |= {name: value for name, value in facts.items() if value is not None}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class RequestLog:
    """Gives a request its id (the caller's `X-Request-ID` where it may be one), a span, a line in the log."""

    def __init__(self, app: ASGIApp, *, tracing: Tracing) -> None:
        self._app = app
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; the answer has the id in `X-Request-ID`."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        sent = headers.get(b"x-request-id", b"")
        identifier = sent.decode("ascii") if _REQUEST_ID.fullmatch(sent) else uuid.uuid4().hex
        request_id.set(identifier)
        start, status = time.perf_counter(), 500

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                named = (b"x-request-id", identifier.encode("ascii"))
                message = {**message, "headers": [*message["headers"], named]}
            await send(message)

        with self._tracing.request_span(scope["method"], scope["path"], headers, identifier) as span:
            try:
                await self._app(scope, receive, send_with_id)
            finally:
                span.end_with(status)
                facts = {
                    "trace_id": span.trace_id,
                    "method": scope["method"],
                    "path": scope["path"],
                    "status": status,
                    "milliseconds": round(1000 * (time.perf_counter() - start), 3),
                    "request_id": identifier,
                }
                log.info("%s %s %d", scope["method"], scope["path"], status, extra=facts)
