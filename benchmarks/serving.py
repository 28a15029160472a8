"""The server under load, on loopback: answers per second, and what happens far beyond capacity.

    python -m benchmarks.serving [--store pages --queries FILE] [--copies 20] [--out results/serving.json]

Without a store the miniature is drawn, indexed and calibrated first. The server runs in a separate process.
One caller, then eight, send requests without pause; then as many as the server admits (its capacity), then
ten times as many, each of which retries after a pause when it is refused. Answers to the same queries before
and after are compared. Then callers send scores along; ten times as many requests as the server then answers
come with a deadline of two seconds and take the order of these scores where the model is late.

With `--copies` a server holds so many copies of the store: its memory over that of a server with one of them,
both with full caches left out, and the time of a request to one of them while the others are asked at a tenth
of capacity, over its time alone. Windows of both take turns.

Callers write their requests to sockets directly: on two cores a client library under 160 callers takes
seconds itself, and those would be counted as the server's.
"""

import argparse
import asyncio
import json
import os
import shutil
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
LATE_SECONDS = 2.0
BACK_OFF_SECONDS = 1.0
"""What the server's Retry-After asks for at least."""

Body = dict[str, Any]


@dataclass
class Load:
    """What callers met."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    """Of the requests that were answered, in seconds."""
    reranked: int = 0
    refused: int = 0
    other: list[int] = field(default_factory=list)

    @property
    def throughput(self) -> float:
        """Answers a second."""
        return len(self.latencies) / self.seconds

    def p99(self) -> float:
        """Of the answered requests, in seconds."""
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
    parser.add_argument("--copies", type=int, default=0, help="measure a server of so many stores instead")
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        if arguments.store is None:
            store, texts = make_store(Path(scratch))
        else:
            store = arguments.store
            texts = [json.loads(line)["text"] for line in arguments.queries.read_text().splitlines()]
        if arguments.copies:
            figures = many_stores(store, texts, arguments.copies, Path(scratch), arguments.seconds)
        else:
            options = ["--store", store.resolve(), "--max-requests", ADMITTED, "--workers", arguments.workers]
            with serving(*options) as (address, process):
                figures = asyncio.run(phases(address, process, texts, arguments.seconds))
    for name, value in figures.items():
        print(f"{name:36} {value}")
    publish(figures, arguments.out)


@contextmanager
def serving(*options: object) -> Iterator[tuple[str, int]]:
    """A server in a process of its own: its address and that process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "ridgerank", "serve", "--port", str(port), *map(str, options)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            yield f"http://127.0.0.1:{port}", server.pid
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(30)


async def phases(address: str, server: int, texts: list[str], seconds: float) -> dict[str, Any]:
    """One caller, eight, capacity, ten times capacity, and the same questions before and after."""
    process = psutil.Process(server)
    searches = [{"query": text, "k": CANDIDATES, "top_n": 5} for text in texts]
    async with httpx.AsyncClient(base_url=address, timeout=120) as client:
        await ready(client)
        before = [await answer(client, text) for text in texts[:20]]
        await load(address, searches, callers=4, seconds=min(3.0, seconds))  # memory and caches settle
        single = await load(address, searches, callers=1, seconds=seconds)
        eight = await load(address, searches, callers=8, seconds=seconds)
        capacity = await load(address, searches, callers=ADMITTED, seconds=seconds)
        at_capacity = memory(process)
        crowd = await load(address, searches, callers=ADMITTED * TIMES_CAPACITY, seconds=seconds)
        after_crowd = memory(process)
        after = [await answer(client, text) for text in texts[:20]]
        concurrent = await asyncio.gather(*(answer(client, text) for text in texts[:ADMITTED]))
    scored = [
        {
            "query": text,
            "documents": [result["page_id"] for result in results],
            "retriever_scores": [result["retriever_score"] for result in results],
        }
        for text, results in zip(texts, before, strict=False)
    ]
    admitted = await load(address, scored, callers=ADMITTED, seconds=seconds, path=b"/v1/rerank")
    late = {"deadline_ms": int(1000 * LATE_SECONDS), "on_overload": "retriever"}
    degraded = await load(
        address,
        [{**body, **late} for body in scored],
        callers=ADMITTED * TIMES_CAPACITY,
        seconds=seconds,
        path=b"/v1/rerank",
        every=ADMITTED / admitted.throughput,
    )
    loads = (single, eight, capacity, crowd, admitted, degraded)
    return {
        "cores": os.cpu_count(),
        "admitted": ADMITTED,
        "candidates": CANDIDATES,
        "throughput_eight_over_one": round(eight.throughput / single.throughput, 2),
        "p99_ten_times_over_capacity": round(crowd.p99() / capacity.p99(), 2),
        "throughput_ten_times_over_capacity": round(crowd.throughput / capacity.throughput, 2),
        "refused_share_at_ten_times": round(crowd.refused / (crowd.refused + len(crowd.latencies)), 3),
        "refused_at_capacity": capacity.refused,
        "other_statuses": sorted({status for each in loads for status in each.other}),
        "memory_growth_percent": round(100 * (after_crowd / at_capacity - 1), 2),
        "answers_after_equal_before": before == after,
        "concurrent_answers_equal_lone": list(concurrent) == before[:ADMITTED],
        "degraded": {
            "deadline_seconds": LATE_SECONDS,
            "requests": len(degraded.latencies) + degraded.refused,
            "times_capacity": round(len(degraded.latencies) / degraded.seconds / admitted.throughput, 1),
            "without_an_order": degraded.refused + len(degraded.other),
            "longest_seconds": round(max(degraded.latencies), 2),
            "reranked_share": round(degraded.reranked / len(degraded.latencies), 3),
            "reranked_a_second_over_capacity": round(
                degraded.reranked / degraded.seconds / (admitted.reranked / admitted.seconds), 2
            ),
        },
        "requests": [len(each.latencies) for each in loads],
    }


def many_stores(store: Path, texts: list[str], copies: int, scratch: Path, seconds: float) -> dict[str, Any]:
    """Memory and time of a server of so many copies of a store, over those of one."""
    searches = [{"query": text, "k": CANDIDATES, "top_n": 5} for text in texts]
    paths = [Path(shutil.copytree(store, scratch / f"store-{number}")) for number in range(copies)]

    def path_of(number: int) -> bytes:
        return b"/stores/store-%d/v1/search" % number

    async def measure(address: str, server: int) -> tuple[int, float]:
        """Resident memory without the cache, after every store was asked; capacity."""
        async with httpx.AsyncClient(base_url=address, timeout=300) as client:
            await ready(client)
            [model] = (await client.get("/v1/models")).json()["data"]
            for each in model["stores"]:
                await client.post(f"/stores/{each['name']}/v1/search", json=searches[0])
            lines = (await client.get("/metrics")).text.splitlines()
            cached = next(
                float(line.split()[1]) for line in lines if line.startswith("ridgerank_cache_bytes")
            )
        full = await load(address, searches, callers=4, seconds=seconds, path=path_of(0))
        return memory(psutil.Process(server)) - int(cached), full.throughput

    async def take_turns(address: str, capacity: float) -> float:
        """Median time of a request to the first store while the others are asked, over that alone."""
        alone, busy = list[float](), list[float]()
        for turn in range(10):
            times = busy if turn % 2 else alone
            pause = 10 * (copies - 1) / capacity
            others = [
                load(address, searches, callers=1, seconds=seconds, path=path_of(number), every=pause)
                for number in range(1, copies if turn % 2 else 1)
            ]
            first = load(address, searches, callers=1, seconds=seconds, path=path_of(0))
            met, *_ = await asyncio.gather(first, *others)
            times += met.latencies
        return float(np.median(busy) / np.median(alone))

    given = [f"--store={path.name}={path}" for path in paths]
    with serving(given[0], "--workers", 1, "--cache-mb", 256) as (address, server):
        memory_of_one, capacity = asyncio.run(measure(address, server))
    with serving(*given, "--workers", 1, "--cache-mb", 256) as (address, server):
        memory_of_all, _ = asyncio.run(measure(address, server))
        ratio = asyncio.run(take_turns(address, capacity))
    return {
        "stores": copies,
        "memory_over_one_store": round(memory_of_all / memory_of_one, 3),
        "time_with_others_at_a_tenth_over_alone": round(ratio, 3),
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


async def load(
    address: str,
    bodies: list[Body],
    *,
    callers: int,
    seconds: float,
    path: bytes = b"/v1/search",
    every: float = 0.0,
) -> Load:
    """So many callers, each asking again when it is answered, once in `every` seconds at most."""
    met, url = Load(), urlsplit(address)
    start = time.perf_counter()
    end = start + seconds

    async def call(number: int) -> None:
        turn = number
        await asyncio.sleep(every * number / callers)
        line = await asyncio.open_connection(url.hostname, url.port)
        while (sent := time.perf_counter()) < end:
            if line[0].at_eof():  # the server closes a line that was idle
                line = await asyncio.open_connection(url.hostname, url.port)
            status, answered = await post(line, path, bodies[turn % len(bodies)])
            turn += callers
            if status == 200:
                met.latencies.append(time.perf_counter() - sent)
                met.reranked += b'"reranked":true' in answered
            elif status == 429:
                met.refused += 1
                await asyncio.sleep(BACK_OFF_SECONDS)
            else:
                met.other.append(status)
            await asyncio.sleep(min(every, end - time.perf_counter()) - (time.perf_counter() - sent))
        line[1].close()

    await asyncio.gather(*(call(number) for number in range(callers)))
    met.seconds = time.perf_counter() - start
    return met


async def post(
    line: tuple[asyncio.StreamReader, asyncio.StreamWriter], path: bytes, body: Body
) -> tuple[int, bytes]:
    """Ask on an open connection; status and body of the whole answer."""
    reader, writer = line
    sent = json.dumps(body).encode()
    writer.write(
        b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (path, len(sent), sent)
    )
    status, *headers = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
    [length] = [line.split(b":")[1] for line in headers if line.startswith(b"content-length:")]
    return int(status.split()[1]), await reader.readexactly(int(length))


if __name__ == "__main__":
    main()
