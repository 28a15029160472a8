"""Connections of the HTTP server: bounded in number and in how long they may send nothing whole.

uvicorn times out connections between two requests only. Here a connection must also deliver the head of a
request within a time limit, and beyond the number of connections a new one replaces one that has sent no
whole request: connections that are only held open shut nobody out.
"""

import asyncio
import time
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from ridgerank.serving.serve_settings import Limits


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol with limits; make one class per server (`bounded_protocol`)."""

    limits: ClassVar[Limits] = Limits()

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 (uvicorn's)
        super().__init__(*arguments, **options)
        self.waits_since = time.monotonic()
        """When this connection began to wait for the head of a request."""
        self._head_timer: asyncio.TimerHandle | None = None

    @property
    def receives_body(self) -> bool:
        """Whether a request has begun and its body is not whole."""
        return self.is_working and bool(self.cycle.more_body)

    @property
    def is_working(self) -> bool:
        """Whether a request has begun and is not answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room for the connection, and wait for its first request."""
        super().connection_made(transport)
        self._await_head()
        if len(self.connections) > self.limits.connections:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_timer()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Handle what was received; a request that is whole stops the clock."""
        try:
            super().handle_events()
        except h11.LocalProtocolError:  # nonsense behind an answer that has begun: nothing can be said to it
            self.transport.close()
        if self.is_working:
            self._stop_timer()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._await_head()
        super().on_response_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: callers could fill the log."""

    def _await_head(self) -> None:
        self._stop_timer()
        self.waits_since = time.monotonic()
        self._head_timer = self.loop.call_later(self.limits.header_seconds, self.close_unless_working)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def close_unless_working(self) -> None:
        """Close a connection that has sent no whole head in time."""
        if not self.is_working and not self.transport.is_closing():
            self.transport.abort()

    def _make_room(self) -> None:
        """Close the connection that has waited longest without a request, or else with half a body."""
        others = [each for each in self.connections if isinstance(each, BoundedProtocol) and each is not self]
        idle = [each for each in others if not each.is_working]
        half = [each for each in others if each.receives_body]
        victim = min(idle or half or [self], key=lambda each: each.waits_since)
        self.connections.discard(victim)
        victim.transport.abort()


def bounded_protocol(limits: Limits) -> type[BoundedProtocol]:
    """The protocol class of a server with these limits."""
    return type("LimitedProtocol", (BoundedProtocol,), {"limits": limits})
