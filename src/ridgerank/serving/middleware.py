"""Checks before every request, in plain ASGI: host, key, size of the body, room in the queue.

The body of a request that is refused here is not read. Errors have the API's own shape.
"""

import asyncio
import hmac
import json
import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ridgerank.serving.dialects import error_answer
from ridgerank.serving.engine import Engine
from ridgerank.serving.http_errors import ApiError
from ridgerank.serving.prometheus import Metrics
from ridgerank.serving.request_body import BodyReceiver, too_large
from ridgerank.serving.request_log import request_id
from ridgerank.serving.serve_settings import ServeSettings

log = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/health", "/ping"})
WORK_PATHS = frozenset(
    {
        "/rerank",
        "/v1/rerank",
        "/v2/rerank",
        "/invocations",
        "/score",
        "/v1/score",
        "/v1/search",
        "/v1/explain",
    }
)
"""Paths whose requests need the model, and so room in the queue."""
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' blob: data:; frame-ancestors 'none'; form-action 'none'; "
        b"base-uri 'none'",
    ),
)


class RequestMiddleware:
    """Lets a request through or refuses it, adds security headers, and counts the answer."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        engine: Engine,
        settings: ServeSettings,
        metrics: Metrics,
        open_paths: frozenset[str] = frozenset(),
    ) -> None:
        """`open_paths` need no key: files of the web page, which hold nothing of the store."""
        self._app = app
        self._engine = engine
        self._settings = settings
        self._metrics = metrics
        self._open_paths = OPEN_PATHS | open_paths
        self._bodies = BodyReceiver(settings.limits)
        self._keys = [key.encode("ascii") for key in settings.keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1003})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        status = 500
        started = False

        async def send_checked(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
                present = {name.lower() for name, _ in message["headers"]}
                missing = [header for header in _HEADERS if header[0] not in present]
                message = {**message, "headers": [*message["headers"], *missing]}
            # A caller who does not read the answer is not waited for for ever.
            await asyncio.wait_for(send(message), self._settings.limits.send_seconds)

        try:
            self._admit(scope)
            await self._app(scope, self._bodies.bounded(receive), send_checked)
        except ApiError as error:
            await self._send_error(send_checked, error)
        except Exception:
            identifier = request_id.get()
            log.exception("request %s failed", identifier)
            if not started:
                message = f"the server failed; its log says why, under {identifier}"
                await self._send_error(send_checked, ApiError(500, "internal_error", message))
        finally:
            self._metrics.record_request(_route(scope), status, time.perf_counter() - start)

    def _admit(self, scope: Scope) -> None:
        """Raise where the request may not pass."""
        headers = {name.lower(): value for name, value in scope["headers"]}
        self._check_host(headers.get(b"host", b"").decode("latin-1"))
        path = scope["path"]
        if self._keys and path not in self._open_paths:
            self._check_key(headers)
        limits = self._settings.limits
        length = headers.get(b"content-length", b"0")
        if not length.isdigit():
            raise ApiError(400, "bad_length", "a Content-Length that is no number")
        if len(length) > 18 or int(length) > limits.body_bytes:
            refused = too_large(limits)
            raise ApiError(refused.status_code, refused.code, refused.detail)
        if path in WORK_PATHS and scope["method"] == "POST":
            self._engine.require_room()

    def _check_host(self, host: str) -> None:
        allowed = self._settings.hosts
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if allowed is not None and name.lower() not in allowed:
            raise ApiError(
                421, "wrong_host", "this server answers under its own address only; call it by that"
            )

    def _check_key(self, headers: dict[bytes, bytes]) -> None:
        scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
        key = key.strip() if scheme.lower() == b"bearer" else b""
        # Every key is compared, and each in constant time: how long it takes tells nothing.
        matches = [hmac.compare_digest(key, valid_key) for valid_key in self._keys]
        if not any(matches):
            raise ApiError(401, "unauthorized", "wanted a valid key: Authorization: Bearer KEY")

    async def _send_error(self, send: Send, error: ApiError) -> None:
        status, answer = error_answer(self._settings.dialect, error.status, error.code, error.message)
        body = json.dumps(answer).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if error.retry_after is not None:
            headers.append((b"retry-after", str(error.retry_after).encode()))
        if error.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if error.status == 413:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _route(scope: Scope) -> str:
    """The route's pattern, so that a label has few values; `other` where no route matched."""
    if scope["path"] in WORK_PATHS:
        return str(scope["path"])
    return str(getattr(scope.get("route"), "path", "other"))
