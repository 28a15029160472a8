"""The server under load, on loopback: answers per second, and what happens far beyond capacity.

    python -m benchmarks.serving [--store pages --queries FILE] [--out results/serving.json]

Without a store the miniature is drawn, indexed and calibrated first. The server runs in a separate process.
One caller, then eight, send requests without pause; then as many as the server admits (its capacity), then
ten times as many, each of which retries after a pause when it is refused. The answers to the same queries
before and after are compared. Prints a table, then one JSON line.

Callers write their requests to sockets directly: on two cores a client library under 160 callers takes
seconds itself, and those would be counted as the server's.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import psutil

from benchmarks import make_store, publish

CANDIDATES = 20
ADMITTED = 16
TIMES_CAPACITY = 10
BACK_OFF_SECONDS = 1.0
"""What the server's Retry-After asks for at least."""


@dataclass
class Load:
    """What callers met."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    refused: int = 0
    other: list[int] = field(default_factory=list)

    @property
    def throughput(self) -> float:
        """Answers a second."""
        return len(self.latencies) / self.seconds

    def p99(self) -> float:
        """Of the admitted requests, in seconds."""
        return float(np.percentile(self.latencies, 99))


def main() -> None:
    """Run all of it, bounded in count and time."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", type=Path)
    parser.add_argument("--queries", type=Path)
    parser.add_argument("--seconds", type=float, default=12.0, help="of each phase")
    parser.add_argument("--workers", type=int, default=2, help="of each server")
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        if arguments.store is None:
            store, texts = make_store(Path(scratch))
        else:
            store = arguments.store
            texts = [json.loads(line)["text"] for line in arguments.queries.read_text().splitlines()]
        with serving(store, arguments.workers) as (address, process):
            figures = asyncio.run(phases(address, process, texts, arguments.seconds))
    for name, value in figures.items():
        print(f"{name:36} {value}")
    publish(figures, arguments.out)


@contextmanager
def serving(store: Path, workers: int) -> Iterator[tuple[str, int]]:
    """A server in a process of its own: its address and that process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["serve", "--store", store.resolve(), "--port", port, "--max-requests", ADMITTED]
    command = [sys.executable, "-m", "ridgerank", *map(str, words), "--workers", str(workers)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            yield f"http://127.0.0.1:{port}", server.pid
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(30)


async def phases(address: str, server: int, texts: list[str], seconds: float) -> dict[str, Any]:
    """One caller, eight, capacity, ten times capacity, and the same questions before and after."""
    process = psutil.Process(server)
    async with httpx.AsyncClient(base_url=address, timeout=120) as client:
        await ready(client)
        before = [await answer(client, text) for text in texts[:20]]
        await load(address, texts, callers=4, seconds=min(3.0, seconds))  # memory and caches settle
        single = await load(address, texts, callers=1, seconds=seconds)
        eight = await load(address, texts, callers=8, seconds=seconds)
        capacity = await load(address, texts, callers=ADMITTED, seconds=seconds)
        at_capacity = memory(process)
        crowd = await load(address, texts, callers=ADMITTED * TIMES_CAPACITY, seconds=seconds)
        after_crowd = memory(process)
        after = [await answer(client, text) for text in texts[:20]]
        concurrent = await asyncio.gather(*(answer(client, text) for text in texts[:ADMITTED]))
    return {
        "cores": os.cpu_count(),
        "admitted": ADMITTED,
        "candidates": CANDIDATES,
        "throughput_eight_over_one": round(eight.throughput / single.throughput, 2),
        "p99_ten_times_over_capacity": round(crowd.p99() / capacity.p99(), 2),
        "throughput_ten_times_over_capacity": round(crowd.throughput / capacity.throughput, 2),
        "refused_share_at_ten_times": round(crowd.refused / (crowd.refused + len(crowd.latencies)), 3),
        "refused_at_capacity": capacity.refused,
        "other_statuses": sorted({*single.other, *eight.other, *capacity.other, *crowd.other}),
        "memory_growth_percent": round(100 * (after_crowd / at_capacity - 1), 2),
        "answers_after_equal_before": before == after,
        "concurrent_answers_equal_lone": list(concurrent) == before[:ADMITTED],
        "requests": {
            "one": len(single.latencies),
            "eight": len(eight.latencies),
            "capacity": len(capacity.latencies),
            "ten_times": len(crowd.latencies),
        },
    }


def memory(server: psutil.Process) -> int:
    """Bytes of the server and the processes that run its model."""
    return sum(process.memory_info().rss for process in (server, *server.children(recursive=True)))


async def ready(client: httpx.AsyncClient) -> None:
    """Wait for the server, two minutes at most."""
    for _ in range(1200):
        try:
            if (await client.get("/readyz")).status_code == 200:
                return
        except httpx.TransportError:
            pass
        await asyncio.sleep(0.1)
    raise SystemExit("the server did not start")


async def answer(client: httpx.AsyncClient, text: str) -> Any:  # noqa: ANN401
    """What is compared of an answer: all but times and the request's id."""
    body = {"query": text, "k": CANDIDATES, "top_n": CANDIDATES}
    while (answer := await client.post("/v1/search", json=body)).status_code == 429:
        await asyncio.sleep(BACK_OFF_SECONDS)
    return answer.json()["results"]


async def load(address: str, texts: list[str], *, callers: int, seconds: float) -> Load:
    """So many callers, each asking again as soon as it is answered, or after a pause where refused."""
    met, url = Load(), urlsplit(address)
    start = time.perf_counter()
    end = start + seconds

    async def call(number: int) -> None:
        turn = number
        line = await asyncio.open_connection(url.hostname, url.port)
        while time.perf_counter() < end:
            sent = time.perf_counter()
            status = await post(line, {"query": texts[turn % len(texts)], "k": CANDIDATES, "top_n": 5})
            turn += callers
            if status == 200:
                met.latencies.append(time.perf_counter() - sent)
            elif status == 429:
                met.refused += 1
                await asyncio.sleep(BACK_OFF_SECONDS)
            else:
                met.other.append(status)
        line[1].close()

    await asyncio.gather(*(call(number) for number in range(callers)))
    met.seconds = time.perf_counter() - start
    return met


async def post(line: tuple[asyncio.StreamReader, asyncio.StreamWriter], body: dict[str, Any]) -> int:
    """Ask on an open connection; the status of the whole answer."""
    reader, writer = line
    sent = json.dumps(body).encode()
    writer.write(
        b"POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(sent), sent)
    )
    status, *headers = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
    [length] = [line.split(b":")[1] for line in headers if line.startswith(b"content-length:")]
    await reader.readexactly(int(length))
    return int(status.split()[1])


if __name__ == "__main__":
    main()
