"""Connections that send nothing, or nothing whole: they end, and shut nobody out."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import uvicorn

from ridgerank.serving.connections import bounded_protocol
from ridgerank.serving.serve_settings import Limits
from tests.serving.conftest import HOME, SECONDS
from tests.serving.test_load import until


async def answer_all(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 (ASGI's)
    """Read the body, then answer."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@contextmanager
def listening(limits: Limits) -> Iterator[int]:
    """The port of a server with these limits."""
    config = uvicorn.Config(answer_all, http=bounded_protocol(limits), ws="none", lifespan="off")
    server = uvicorn.Server(config)
    door = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[door])), daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        yield door.getsockname()[1]
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join(SECONDS)


def connect(port: int, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
    connection.sendall(sent)
    return connection


def read_to_end(connection: socket.socket) -> bytes:
    """All that the server sends until it closes the connection."""
    received = b""
    with connection, suppress(ConnectionResetError):
        while part := connection.recv(1000):
            received += part
    return received


def test_idle_connections_beyond_the_limit_shut_nobody_out() -> None:
    with listening(Limits(connections=8, header_seconds=SECONDS)) as port:
        half = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf"
        held = [connect(port, sent) for sent in (b"", b"GET / HT", half) for _ in range(20)]
        assert httpx.get(f"{HOME}:{port}/", timeout=SECONDS).text == "ok"
        assert read_to_end(held[0]) == b"", "the one that waited longest was not closed"
        for connection in held:
            connection.close()


def test_a_connection_without_a_whole_head_is_closed_in_time_and_between_requests_too() -> None:
    with listening(Limits(header_seconds=0.2)) as port:
        for sent in (b"", b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "):
            assert read_to_end(connect(port, sent)) == b""
        answered = read_to_end(connect(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
        assert answered.startswith(b"HTTP/1.1 200")


def test_a_head_that_comes_in_parts_in_time_is_answered() -> None:
    with listening(Limits()) as port:
        connection = connect(port, b"GET / HTTP/1.1\r\n")
        connection.sendall(b"Host: x\r\n")
        connection.sendall(b"\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        connection.close()


def test_nonsense_behind_a_request_ends_its_connection_only() -> None:
    with listening(Limits()) as port:
        read_to_end(connect(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n\x00\xff nonsense\r\n\r\n" * 3))
        upgrade = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
        with connect(port, upgrade) as connection:
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        assert httpx.get(f"{HOME}:{port}/", timeout=SECONDS).text == "ok"
