"""The body of a request: received within a time limit and bounded memory, and cheap to parse.

A body that does not arrive takes nothing from other requests but a connection: small bodies are always
received, large ones share a bounded memory, which is counted as bytes arrive and not as they are promised.
"""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from ridgerank.serving.serve_settings import Limits

_FEW_MARKS = 4096
"""A body with no more marks than this takes no time to parse, whatever it holds."""


class BodyRefused(HTTPException):
    """A body that is not read on. Of all errors met while reading, FastAPI passes on only its own kind."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(status, message, headers={"Connection": "close"})
        self.code = code


class BodyReceiver:
    """Receives the bodies of all requests of a server; for one event loop."""

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
            return await self._receive_body(receive)

        return receive_whole

    async def _receive_body(self, receive: Receive) -> Message:
        limits = self._limits
        end = asyncio.get_running_loop().time() + limits.body_seconds
        parts: list[bytes] = []
        received = held = 0
        try:
            while True:
                message = await self._receive_part(receive, end)
                if message["type"] != "http.request":
                    return message
                parts.append(message.get("body", b""))
                received += len(parts[-1])
                if received > limits.body_bytes:
                    raise too_large(limits)
                more = max(0, received - limits.small_body_bytes) - held
                held += more
                self._held += more
                if self._held > limits.large_bodies * limits.body_bytes:
                    raise BodyRefused(429, "overloaded", "too much is being sent at once; try again")
                if not message.get("more_body", False):
                    break
        finally:
            self._held -= held
        body = b"".join(parts)
        await require_simple_json(body, limits)
        return {"type": "http.request", "body": body, "more_body": False}

    async def _receive_part(self, receive: Receive, end: float) -> Message:
        seconds = end - asyncio.get_running_loop().time()
        try:
            return await asyncio.wait_for(receive(), seconds)
        except TimeoutError:
            limit = self._limits.body_seconds
            raise BodyRefused(408, "body_late", f"the body did not arrive within {limit:g} s") from None


def too_large(limits: Limits) -> BodyRefused:
    """A body beyond the limit."""
    return BodyRefused(
        413, "too_large", f"a body of more than {limits.body_bytes:,} bytes; send less at once"
    )


async def require_simple_json(body: bytes, limits: Limits) -> None:
    """Refuse a body that would keep the event loop busy: of too many values, or too many keys.

    What is wrong with it as JSON is left to whoever parses it.
    """
    marks = sum(body.count(mark) for mark in (b",", b":", b"[", b"{"))
    if marks <= _FEW_MARKS:
        return
    if marks > limits.json_marks:
        raise BodyRefused(413, "too_large", f"a body of more than {limits.json_marks:,} values; send fewer")
    keys = await asyncio.to_thread(_count_keys, body, limits.json_keys)
    if keys > limits.json_keys:
        raise BodyRefused(413, "too_large", f"a body of more than {limits.json_keys:,} keys; send fewer")


class _ManyKeys(Exception):  # noqa: N818 (reads as the fact it states)
    """There are more keys than are counted."""


def _count_keys(body: bytes, limit: int) -> int:
    """Keys of all objects of a body, counted up to one above `limit`."""
    keys = 0

    def count(pairs: Sequence[object]) -> None:
        nonlocal keys
        keys += len(pairs)
        if keys > limit:
            raise _ManyKeys

    with suppress(ValueError, RecursionError, _ManyKeys):
        json.loads(body, object_pairs_hook=count)
    return keys
