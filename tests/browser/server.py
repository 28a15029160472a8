"""`ridgerank serve` as a process on loopback, as people start it."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

START_SECONDS = 300
STOP_SECONDS = 30


@contextmanager
def serving(store: Path, *options: str, log: Path) -> Iterator[str]:
    """The address of a server over a store; it is stopped, and its log is shown where it never started."""
    port = _free_port()
    command = [sys.executable, "-m", "ridgerank.cli.main", "serve", "--store", str(store)]
    with log.open("wb") as file:
        process = subprocess.Popen([*command, "--port", str(port), *options], stdout=file, stderr=file)
        try:
            address = f"http://127.0.0.1:{port}"
            _wait(process, address, log)
            yield address
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def ask(address: str, path: str, body: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401 (JSON)
    """What the server answers, apart from any browser."""
    content = None if body is None else json.dumps(body).encode()
    request = Request(f"{address}{path}", content, {"Content-Type": "application/json"})
    with urlopen(request, timeout=120) as answer:
        return json.load(answer)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def _wait(process: "subprocess.Popen[bytes]", address: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urlopen(f"{address}/readyz", timeout=5):
                return
        except (URLError, OSError):  # not listening yet, or not ready
            time.sleep(0.2)
    raise RuntimeError(f"the server is not ready: {log.read_text(errors='replace')[-3000:]}")
