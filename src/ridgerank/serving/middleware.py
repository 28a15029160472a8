"""What stands before every request, in plain ASGI: who may call, how much may be sent, whether there is room.

A request that is refused here costs a header: its body is not read. Errors have the API's own shape.
"""

import hmac
import json
import logging
import time
import uuid

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ridgerank.serving.engine import Engine
from ridgerank.serving.http_errors import Refusal
from ridgerank.serving.prometheus import Metrics
from ridgerank.serving.serve_settings import Settings

log = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
WORK_PATHS = frozenset({"/rerank", "/v1/rerank", "/v2/rerank", "/v1/score", "/v1/search", "/v1/explain"})
"""Paths whose requests need the model, and so a place in the queue."""
BODIES_AT_ONCE = 8
"""Bodies of the greatest size that may be on their way at once."""
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


class Gate:
    """ASGI middleware."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        engine: Engine,
        settings: Settings,
        metrics: Metrics,
        open_paths: frozenset[str] = frozenset(),
    ) -> None:
        """`open_paths` need no key: files of the page, which hold nothing of the store."""
        self._app = app
        self._engine = engine
        self._settings = settings
        self._metrics = metrics
        self._open = OPEN_PATHS | open_paths
        self._reserved = 0
        """Bytes that requests in progress may send: these lie in memory, whatever the queue holds."""
        self._keys = [key.encode("ascii") for key in settings.keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        status = 500
        began = False

        async def noting(message: Message) -> None:
            nonlocal status, began
            if message["type"] == "http.response.start":
                status, began = message["status"], True
                own = {name.lower() for name, _ in message["headers"]}
                lacking = [header for header in _HEADERS if header[0] not in own]
                message = {**message, "headers": [*message["headers"], *lacking]}
            await send(message)

        reserved = 0
        try:
            reserved = self._admitted_bytes(scope)
            await self._app(scope, self._counted(scope, receive), noting)
        except Refusal as refusal:
            await _answer(noting, refusal)
        except Exception:
            number = uuid.uuid4().hex
            log.exception("request %s failed", number)
            if not began:
                message = f"the server failed; its log says why, under {number}"
                await _answer(noting, Refusal(500, "internal_error", message))
        finally:
            self._reserved -= reserved
            self._metrics.answered(_route(scope), status, time.perf_counter() - start)

    def _admitted_bytes(self, scope: Scope) -> int:
        """Refuse what may not pass; the memory set aside for the body of what may."""
        headers = {name.lower(): value for name, value in scope["headers"]}
        self._check_host(headers.get(b"host", b"").decode("latin-1"))
        path = scope["path"]
        if self._keys and path not in self._open:
            self._check_key(headers)
        limit = self._settings.limits.body_bytes
        length = headers.get(b"content-length", b"0" if scope["method"] == "GET" else str(limit).encode())
        if not length.isdigit():
            raise Refusal(400, "bad_length", "a Content-Length that is no number")
        if len(length) > 18 or int(length) > limit:
            raise self._too_large()
        if path in WORK_PATHS and scope["method"] == "POST":
            self._engine.require_room()
        if self._reserved + int(length) > BODIES_AT_ONCE * limit:
            raise Refusal(429, "overloaded", "too much is being sent at once", retry_after=1)
        self._reserved += int(length)
        return int(length)

    def _check_host(self, host: str) -> None:
        allowed = self._settings.hosts
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if allowed is not None and name.lower() not in allowed:
            raise Refusal(
                421, "wrong_host", "this server answers under its own address only; call it by that"
            )

    def _check_key(self, headers: dict[bytes, bytes]) -> None:
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        given = given.strip() if kind.lower() == b"bearer" else b""
        # Every key is compared, and each in constant time: how long it takes tells nothing.
        matches = [hmac.compare_digest(given, key) for key in self._keys]
        if not any(matches):
            raise Refusal(401, "unauthorized", "wanted a valid key: Authorization: Bearer KEY")

    def _counted(self, scope: Scope, receive: Receive) -> Receive:
        """A body sent without its length is counted while it comes."""
        received = 0

        async def counting() -> Message:
            nonlocal received
            message = await receive()
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                if received > self._settings.limits.body_bytes:
                    # Of all errors met while reading a body, FastAPI passes on only its own.
                    raise HTTPException(413, self._too_large().message)
            return message

        return counting

    def _too_large(self) -> Refusal:
        limit = self._settings.limits.body_bytes
        return Refusal(413, "too_large", f"a body of more than {limit:,} bytes; send less at once")


def _route(scope: Scope) -> str:
    """The route's pattern, so that a label has few values; whatever has none counts as one."""
    if scope["path"] in WORK_PATHS:
        return str(scope["path"])
    return str(getattr(scope.get("route"), "path", "other"))


async def _answer(send: Send, refusal: Refusal) -> None:
    body = json.dumps({"message": refusal.message, "code": refusal.code, "fields": []}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refusal.retry_after is not None:
        headers.append((b"retry-after", str(refusal.retry_after).encode()))
    if refusal.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if refusal.status == 413:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
