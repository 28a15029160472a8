"""An S3 server on loopback that counts what it is asked for: moto's, for tests and measurements."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock, Thread
from typing import Any
from unittest.mock import patch

BUCKET = "pages"


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a server was asked for."""

    requests: int
    nbytes: int
    """Bytes of answers' bodies."""
    methods: tuple[tuple[str, int], ...]
    """Requests by method, sorted."""


class LoopbackS3:
    """A running server with one empty bucket."""

    def __init__(self, server: Any, counter: "_Counter") -> None:  # noqa: ANN401 (werkzeug's)
        self._counter = counter
        self.endpoint = f"http://127.0.0.1:{server.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What a client has to find in its environment."""
        return {
            "AWS_ACCESS_KEY_ID": "loopback-key",
            "AWS_SECRET_ACCESS_KEY": "loopback-secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @contextmanager
    def counted(self) -> Iterator[Callable[[], Traffic]]:
        """Within the block, calling what it yields tells the traffic since its start."""
        before = self._counter.snapshot()
        yield lambda: self._counter.since(before)


@contextmanager
def loopback_s3() -> Iterator[LoopbackS3]:
    """Start a server, make the bucket, and have this process's environment lead there."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):  # type: ignore[misc]
        protocol_version = "HTTP/1.1"

        def log_request(self, *_: object) -> None:
            pass

    counter = _Counter(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, counter, threaded=True, request_handler=Quiet)
    thread = Thread(target=server.serve_forever, name="loopback-s3", daemon=True)
    thread.start()
    running = LoopbackS3(server, counter)
    try:
        with patch.dict(os.environ, running.environment):
            _make_bucket(running)
            yield running
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _make_bucket(running: LoopbackS3) -> None:
    import urllib.request

    request = urllib.request.Request(
        f"{running.endpoint}/{BUCKET}",
        method="PUT",
        headers={
            "Authorization": "AWS4-HMAC-SHA256 Credential=loopback-key/20260101/us-east-1/s3/aws4_request"
        },
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        answer.read()


class _Counter:
    """A WSGI application around another that counts."""

    def __init__(self, inner: Callable[..., Iterable[bytes]]) -> None:
        self._inner = inner
        self._lock = Lock()
        self._methods: dict[str, int] = {}
        self._nbytes = 0

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterator[bytes]:
        with self._lock:
            method = environ["REQUEST_METHOD"]
            self._methods[method] = self._methods.get(method, 0) + 1
        for piece in self._inner(environ, start_response):
            with self._lock:
                self._nbytes += len(piece)
            yield piece

    def snapshot(self) -> tuple[dict[str, int], int]:
        with self._lock:
            return dict(self._methods), self._nbytes

    def since(self, before: tuple[dict[str, int], int]) -> Traffic:
        methods, nbytes = self.snapshot()
        by_method = {name: count - before[0].get(name, 0) for name, count in methods.items()}
        by_method = {name: count for name, count in by_method.items() if count}
        return Traffic(sum(by_method.values()), nbytes - before[1], tuple(sorted(by_method.items())))
