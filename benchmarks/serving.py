"""The server under load, on loopback: answers per second, and what happens far beyond capacity.

    python -m benchmarks.serving [--store pages --queries FILE] [--out results/serving.json]
    python -m benchmarks.serving --store pages --queries FILE --old CHECKOUT [--rounds 5]

Without a store the miniature is drawn, indexed and calibrated first. The server runs in a separate process.
One caller, then eight, send requests without pause; then as many as the server admits (its capacity), then
ten times as many, each of which retries after a pause when it is refused. The answers to the same queries
before and after are compared. Prints a table, then one JSON line.

With `--old` a server of another checkout runs beside this one over the same store, both with `--workers 2`
unless said otherwise. They take turns, phase by phase, and medians over the rounds are compared.

Callers write their requests to sockets directly: on two cores a client library under 160 callers takes
seconds itself, and those would be counted as the server's.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import psutil

from benchmarks.report import publish, ridgerank
from miniature import weights
from miniature.corpora import find_plan, make_corpus
from miniature.draw import draw_corpus

CHECKOUT = Path(__file__).parents[1]
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

    def p50(self) -> float:
        """Median seconds of the admitted requests."""
        return statistics.median(self.latencies)

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
    parser.add_argument("--old", type=Path, help="another checkout, whose server takes turns with this one")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each server, with --old")
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        store, queries = arguments.store, arguments.queries
        if store is None:
            store, queries = make_store(folder)
        texts = [json.loads(line)["text"] for line in queries.read_text().splitlines()]
        if arguments.old is None:
            with serving(CHECKOUT, store, arguments.workers) as (address, process):
                figures = asyncio.run(phases(address, process, texts, arguments.seconds))
        else:
            with (
                serving(arguments.old.resolve(), store, arguments.workers) as (old, _),
                serving(CHECKOUT, store, arguments.workers) as (new, _),
            ):
                figures = asyncio.run(take_turns(old, new, texts, arguments.seconds, arguments.rounds))
    for name, value in figures.items():
        print(f"{name:36} {value}")
    publish(figures, arguments.out)


def make_store(folder: Path) -> tuple[Path, Path]:
    """A corpus of the miniature, calibrated by half of its queries."""
    for _ in draw_corpus(make_corpus(find_plan("alder")), folder):
        pass
    store, queries = folder / "pages", folder / "queries.jsonl"
    models = ("--backbone", weights("mini-qwen"), "--retriever", weights("mini-colqwen"))
    ridgerank("index", folder / "documents", "--store", store, *models, "--preset", "paper")
    lines = queries.read_text().splitlines()
    (folder / "half.jsonl").write_text("\n".join(lines[::2]))
    ridgerank("calibrate", "--store", store, "--queries", folder / "half.jsonl")
    return store, queries


@contextmanager
def serving(checkout: Path, store: Path, workers: int) -> Iterator[tuple[str, int]]:
    """A checkout's server in a process of its own: its address and that process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["serve", "--store", store.resolve(), "--port", port, "--max-requests", ADMITTED]
    command = [sys.executable, "-m", "ridgerank", *map(str, words), "--workers", str(workers)]
    environment = os.environ | {"PYTHONPATH": f"{checkout / 'src'}{os.pathsep}{checkout}"}
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment) as server:
        try:
            yield f"http://127.0.0.1:{port}", server.pid
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(30)


async def take_turns(old: str, new: str, texts: list[str], seconds: float, rounds: int) -> dict[str, Any]:
    """Medians over the rounds of the new server's figures divided by the old one's."""
    addresses = {"old": old, "new": new}
    callers = {"one": 1, "eight": 8, "capacity": ADMITTED, "ten_times": ADMITTED * TIMES_CAPACITY}
    met: dict[tuple[str, str], list[Load]] = {(name, phase): [] for name in addresses for phase in callers}
    for address in addresses.values():
        async with httpx.AsyncClient(base_url=address, timeout=120) as client:
            await ready(client)
        await load(address, texts, callers=4, seconds=min(3.0, seconds))
    for turn in range(rounds):
        for phase, number in callers.items():
            for name in addresses if turn % 2 else reversed(addresses):
                loaded = await load(addresses[name], texts, callers=number, seconds=seconds)
                met[name, phase].append(loaded)

    def median(name: str, phase: str, figure: Callable[[Load], float]) -> float:
        return statistics.median(figure(each) for each in met[name, phase])

    def ratio(phase: str, figure: Callable[[Load], float]) -> float:
        return round(median("new", phase, figure) / median("old", phase, figure), 3)

    def crowded(name: str) -> float:
        return round(median(name, "ten_times", Load.p99) / median(name, "capacity", Load.p99), 2)

    loads = [each for turns in met.values() for each in turns]
    return {
        "rounds": rounds,
        "eight_callers_answers_new_over_old": ratio("eight", lambda each: each.throughput),
        "one_caller_median_latency_new_over_old": ratio("one", lambda each: each.p50()),
        "one_caller_answers_new_over_old": ratio("one", lambda each: each.throughput),
        "p99_ten_times_over_capacity": {name: crowded(name) for name in addresses},
        "eight_over_one": {
            name: round(
                median(name, "eight", lambda each: each.throughput)
                / median(name, "one", lambda each: each.throughput),
                2,
            )
            for name in addresses
        },
        "other_statuses": sorted({status for each in loads for status in each.other}),
    }


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
    answer = (await client.post("/v1/search", json=body)).json()
    return answer["results"]


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
