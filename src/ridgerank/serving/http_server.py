"""A service on a port: uvicorn with bounded connections, and an end within ten seconds whatever runs."""

import logging
import os
import socket
from threading import Thread, Timer
from types import FrameType

import uvicorn

from ridgerank.serving.app import create_app
from ridgerank.serving.connections import bounded_protocol
from ridgerank.serving.service import Service

log = logging.getLogger(__name__)

END_SECONDS = 9.5
"""From a signal to the end of the process, at the most."""
GRACE_SECONDS = 8
"""How long admitted requests may take to finish after a signal."""


class SignalledServer(uvicorn.Server):
    """uvicorn's server, which refuses requests from a signal on and ends in time."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end. Locks may be held by the interrupted code, so threads do what needs them."""
        if not self.should_exit:
            Thread(target=self._service.begin_close, daemon=True).start()
            timer = Timer(END_SECONDS, self._end_now, args=(sig,))
            timer.daemon = True
            timer.start()
        super().handle_exit(sig, frame)

    def _end_now(self, sig: int) -> None:
        log.error("not done %g s after the signal; the server ends all the same", END_SECONDS)
        ending = Thread(target=self._service.end_processes, daemon=True)
        ending.start()
        ending.join(0.3)
        os._exit(128 + sig)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free port."""
    return uvicorn.Config("", host=host, port=port, log_level="error").bind_socket()


def serve_on(service: Service, listening: socket.socket) -> None:
    """Serve until SIGTERM or Ctrl-C, then finish what was admitted and close the service."""
    app = create_app(service, close_seconds=1.0)
    SignalledServer(server_config(service, app), service).run(sockets=[listening])


def server_config(service: Service, app: object) -> uvicorn.Config:
    """What uvicorn is told."""
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=bounded_protocol(service.settings.limits),
        ws="none",
        log_level="error",  # its warnings come at a caller's will
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(service.settings.limits.header_seconds),
        h11_max_incomplete_event_size=service.settings.limits.header_bytes,
        backlog=service.settings.limits.connections,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
