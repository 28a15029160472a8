"""What happens around every request, in plain ASGI: id, host, key, size of the body, room in the queue, log.

The body of a request that is refused here is not read. A body that does not arrive takes nothing from other
requests but a connection: small bodies are always received, large ones share a bounded memory, which is
counted as bytes arrive and not as they are promised. Errors have the API's own shape.
"""

import asyncio
import hmac
import json
import logging
import re
import time
import uuid
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ridgerank.serving.http_errors import ApiError, BodyRefused, as_api_error
from ridgerank.serving.logs import request_id, request_log
from ridgerank.serving.metrics import OPERATIONS
from ridgerank.serving.service import Service
from ridgerank.serving.settings import STORE_NAME, Limits
from ridgerank.serving.stores import StoreChoice

log = logging.getLogger(__name__)

DOCS_PATH = "/docs"
OPEN_PATHS = frozenset({"/", "/healthz", "/readyz", "/health", DOCS_PATH, "/openapi.json"})
"""Paths that need no key, as the files of the web page: they tell nothing of the store."""
WORK_PATHS = frozenset(OPERATIONS)
"""Paths whose requests need the model, and so room in the queue."""
_STORE_PATH = re.compile(rf"/stores/({STORE_NAME.pattern})(?=/)")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_CSP = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:"
"""A page's image that had to be fetched with a key is a blob."""
_DOCS_CSP = (
    "default-src 'self'; script-src 'unsafe-inline' https://cdn.jsdelivr.net; "
    "style-src https://cdn.jsdelivr.net; img-src data: https://fastapi.tiangolo.com"
)
"""FastAPI's page loads its viewer from there."""
_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-cache",
}


class RequestMiddleware:
    """Lets a request through or refuses it, adds security headers, counts and logs the answer."""

    def __init__(self, app: ASGIApp, *, service: Service) -> None:
        self._app = app
        self._settings, self._metrics = service.settings, service.metrics
        self._waiting = 0
        """Requests to rank that are being answered."""
        self._bodies = BodyReceiver(service.settings.limits)
        self._keys = {key.encode("ascii"): stores for key, stores in service.settings.keys.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1003})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        choice = scope["ridgerank"] = StoreChoice(None, None)
        if in_path := _STORE_PATH.match(_path(scope)):
            choice.named = in_path[1]
            scope["root_path"] = scope.get("root_path", "") + in_path[0]
        sent_id = headers.get(b"x-request-id", b"")
        identifier = sent_id.decode("ascii") if _REQUEST_ID.fullmatch(sent_id) else uuid.uuid4().hex
        request_id.set(identifier)
        start = time.perf_counter()
        status = 500
        started = False
        self._waiting += _path(scope) in WORK_PATHS

        async def send_checked(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
                more = {b"x-request-id": identifier.encode()}
                if choice.used is not None:
                    more[b"x-ridgerank-state"] = f"{choice.used.name}/{choice.used.version}".encode()
                message = {**message, "headers": _add_headers(message["headers"], _path(scope), more)}
            # A caller who does not read the answer is not waited for for ever.
            await asyncio.wait_for(send(message), self._settings.limits.send_seconds)

        try:
            self._admit(scope, headers, choice)
            await self._app(scope, self._bodies.bounded(receive), send_checked)
        except Exception as error:
            refused = as_api_error(error)
            if refused is None:
                log.exception("request %s failed", identifier)
                message = f"the server failed; its log says why, under {identifier}"
                refused = ApiError(500, "internal_error", message)
            if not started:
                await self._send_error(send_checked, refused)
        finally:
            self._waiting -= _path(scope) in WORK_PATHS
            seconds = time.perf_counter() - start
            used = choice.used.name if choice.used is not None else ""
            self._metrics.record_request(_route(scope), status, seconds, used)
            facts = {
                "method": scope["method"],
                "path": scope["path"],
                "status": status,
                "milliseconds": round(1000 * seconds, 3),
                "request_id": identifier,
            }
            request_log.info("%s %r %d", scope["method"], scope["path"], status, extra=facts)

    def _admit(self, scope: Scope, headers: dict[bytes, bytes], choice: StoreChoice) -> None:
        """Raise if the request may not pass."""
        self._check_host(headers.get(b"host", b"").decode("latin-1"))
        path = _path(scope)
        if self._keys and path not in OPEN_PATHS and not path.startswith("/page/"):
            choice.allowed = self._check_key(headers)
        limits = self._settings.limits
        length = headers.get(b"content-length", b"0")
        if not length.isdigit():
            raise ApiError(400, "bad_length", "the Content-Length is not a number")
        if len(length) > 18 or int(length) > limits.body_bytes:
            raise _too_large(limits)
        head = len(scope["raw_path"]) + sum(len(name) + len(value) for name, value in scope["headers"])
        if head > limits.header_bytes:  # what arrives at once passes h11's own limit
            raise ApiError(431, "too_large", f"the head has more than {limits.header_bytes:,} bytes")
        if scope["method"] == "POST":
            self._check_sender(headers)
            if path in WORK_PATHS and self._waiting > limits.waiting:
                message = f"{limits.waiting} requests wait already; try again"
                raise ApiError(429, "overloaded", message, retry_after=1)

    def _check_sender(self, headers: dict[bytes, bytes]) -> None:
        """Refuse what another website makes a browser send; JSON alone it cannot send unasked."""
        if headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != b"application/json":
            raise ApiError(415, "not_json", "expected a body of Content-Type application/json")
        origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site")
        own = site == b"same-origin" if site else urlsplit(origin or b"").netloc == headers.get(b"host")
        if origin is not None and not own:
            raise ApiError(403, "forbidden", "this request comes from another website")

    def _check_host(self, host: str) -> None:
        allowed = self._settings.hosts
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if allowed is not None and name.lower() not in allowed:
            raise ApiError(
                421, "wrong_host", "this server answers under its own address only; call it by that"
            )

    def _check_key(self, headers: dict[bytes, bytes]) -> frozenset[str] | None:
        """The stores that the request's key may use."""
        scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
        key = key.strip() if scheme.lower() == b"bearer" else b""
        # Every key is compared, and each in constant time: how long it takes tells nothing.
        matches = [stores for valid, stores in self._keys.items() if hmac.compare_digest(key, valid)]
        if not matches:
            raise ApiError(401, "unauthorized", "a valid key is required: Authorization: Bearer KEY")
        return matches[0]

    async def _send_error(self, send: Send, error: ApiError) -> None:
        status, answer = error.answer(self._settings.dialect)
        body = json.dumps(answer).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if error.retry_after is not None:
            headers.append((b"retry-after", str(error.retry_after).encode()))
        if error.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if error.status in (408, 413):
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class BodyReceiver:
    """Receives the bodies of all requests of a server within limits of size, time and memory."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held = 0
        """Bytes of large bodies that are being received."""

    def bounded(self, receive: Receive) -> Receive:
        """A `receive` that gives the whole body at once, then what comes after it."""
        whole = False

        async def receive_whole() -> Message:
            nonlocal whole
            if whole:
                return await receive()
            whole = True
            seconds = self._limits.body_seconds
            try:
                return await asyncio.wait_for(self._receive_body(receive), seconds)
            except TimeoutError:
                message = f"the body did not arrive within {seconds:g} s"
                raise BodyRefused(408, "body_late", message) from None

        return receive_whole

    async def _receive_body(self, receive: Receive) -> Message:
        limits = self._limits
        parts: list[bytes] = []
        received = held = 0
        try:
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return message
                parts.append(message.get("body", b""))
                received += len(parts[-1])
                if received > limits.body_bytes:
                    raise _too_large(limits)
                more = max(0, received - limits.small_body_bytes) - held
                held += more
                self._held += more
                if self._held > limits.large_bodies * limits.body_bytes:
                    raise BodyRefused(429, "overloaded", "too much is being sent at once; try again")
                if not message.get("more_body", False):
                    return {"type": "http.request", "body": b"".join(parts), "more_body": False}
        finally:
            self._held -= held


def _too_large(limits: Limits) -> BodyRefused:
    return BodyRefused(
        413, "too_large", f"the body has more than {limits.body_bytes:,} bytes; send less at once"
    )


def _add_headers(
    headers: list[tuple[bytes, bytes]], path: str, more: dict[bytes, bytes]
) -> list[tuple[bytes, bytes]]:
    """The headers of an answer with `more`, and with those for security."""
    policy = _DOCS_CSP if path == DOCS_PATH else _CSP
    policy = f"{policy}; frame-ancestors 'none'; form-action 'self'; base-uri 'none'"
    more = {**_HEADERS, b"content-security-policy": policy.encode(), **more}
    present = {name.lower() for name, _ in headers}
    return [*headers, *((name, value) for name, value in more.items() if name not in present)]


def _path(scope: Scope) -> str:
    """The path of a request without the part that names a store."""
    return str(scope["path"]).removeprefix(scope.get("root_path", ""))


def _route(scope: Scope) -> str:
    """The route's pattern, so that a label has few values; `other` if no route matched."""
    if _path(scope) in WORK_PATHS:
        return _path(scope)
    return str(getattr(scope.get("route"), "path", "other"))
