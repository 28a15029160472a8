"""`ridgerank serve` as a process on loopback, as people start it."""

import json
import re
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
STOP_SECONDS = 120


@contextmanager
def serving(store: Path, *options: str, log: Path, workers: int = 1) -> Iterator[str]:
    """The address of a server over a store; it has to end when it is told to."""
    options = (*options, "--workers", str(workers))
    command = [sys.executable, "-m", "ridgerank", "serve", "--store", str(store), "--port", "0"]
    with log.open("wb") as file:
        process = subprocess.Popen([*command, *options], stdout=file, stderr=file)
        try:
            yield _wait_until_ready(process, log)
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise


def ask(address: str, path: str, body: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401 (JSON)
    """What the server answers, apart from any browser."""
    content = None if body is None else json.dumps(body).encode()
    request = Request(f"{address}{path}", content, {"Content-Type": "application/json"})
    with urlopen(request, timeout=120) as answer:
        return json.load(answer)


def _wait_until_ready(process: "subprocess.Popen[bytes]", log: Path) -> str:
    """The address that the server wrote to its log, once it answers there."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            address = re.search(r"http://127\.0\.0\.1:\d+", log.read_text(errors="replace"))
            if address is not None:
                with urlopen(f"{address[0]}/readyz", timeout=30):
                    return address[0]
        except (URLError, OSError):  # not listening yet, or not ready
            pass
        time.sleep(0.2)
    raise RuntimeError(f"the server is not ready: {log.read_text(errors='replace')[-3000:]}")
