"""An S3 server on loopback that counts what it is asked for: moto's."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock, Thread
from typing import Any
from unittest.mock import patch
from urllib.request import Request, urlopen

BUCKET = "pages"
KEY_ID, SECRET = "loopback-key", "loopback-secret"


class Traffic:
    """A WSGI application around another: the requests by method, and the bytes of the answers' bodies."""

    def __init__(self, inner: Any) -> None:  # noqa: ANN401 (moto's)
        self._inner, self._lock = inner, Lock()
        self.clear()

    def clear(self) -> None:
        """Count from now on."""
        self.methods: Counter[str] = Counter()
        self.nbytes = 0

    def __call__(self, environ: dict[str, Any], start_response: object) -> Iterator[bytes]:
        with self._lock:
            self.methods[environ["REQUEST_METHOD"]] += 1
        pieces: Iterable[bytes] = self._inner(environ, start_response)
        for piece in pieces:
            with self._lock:
                self.nbytes += len(piece)
            yield piece


@contextmanager
def loopback_s3() -> Iterator[Traffic]:
    """Start a server with one empty bucket, and have this process's environment lead there."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):  # type: ignore[misc]
        protocol_version = "HTTP/1.1"

        def log_request(self, *_: object) -> None:
            pass

    traffic = Traffic(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, traffic, threaded=True, request_handler=Quiet)
    thread = Thread(target=server.serve_forever, name="loopback-s3", daemon=True)
    thread.start()
    endpoint = f"http://127.0.0.1:{server.port}"
    environment = {
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    signed = f"AWS4-HMAC-SHA256 Credential={KEY_ID}/20260101/us-east-1/s3/aws4_request"
    request = Request(f"{endpoint}/{BUCKET}", method="PUT", headers={"Authorization": signed})
    try:
        with urlopen(request, timeout=30) as answer, patch.dict(os.environ, environment):
            answer.read()
            yield traffic
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
