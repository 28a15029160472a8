"""The server of `benchmarks.torture`: good and hostile callers, and what is done to its processes."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock
from typing import Any

import httpx
import psutil

from benchmarks.hostile_requests import draw_request, half_request
from benchmarks.torture_ledger import Ledger

START_SECONDS = 300.0
END_SECONDS = 10.0
"""A server has to end within this after SIGTERM."""
REQUEST_SECONDS = 120.0
K = 12
OPEN_HALVES = 40
"""Connections with half a request that a hostile caller keeps open."""


@dataclass(frozen=True, slots=True)
class ExpectedRanking:
    """What one process alone answers to a query."""

    query: str
    pages: tuple[tuple[str, float, float], ...]
    """Page id, fused score and readout score, best first."""


class TorturedServer:
    """`ridgerank serve` in a process, which may be killed and is then started again."""

    def __init__(self, store: Path, folder: Path) -> None:
        self._store = store
        self.log = folder / "server.log"
        with socket.create_server(("127.0.0.1", 0)) as door:
            self.port = door.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self._lock = Lock()
        self.start()

    def start(self) -> None:
        """Start the server and wait until it is ready."""
        command = [sys.executable, "-m", "ridgerank.cli.main", "serve", "--store", str(self._store)]
        command += ["--port", str(self.port), "--workers", "2", "--processes", "--encode-missing"]
        command += ["--cache-mb", "64", "--deadline", "60"]
        with self.log.open("ab") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=file)
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until the server says that it can answer."""
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            with suppress(httpx.HTTPError):
                if httpx.get(f"{self.address}/readyz", timeout=10).status_code == 200:
                    return
            time.sleep(0.3)
        raise RuntimeError(f"the server is not ready; its log is {self.log}")

    def workers(self) -> list[psutil.Process]:
        """The processes that run the model or read files for it."""
        with suppress(psutil.Error):
            children = psutil.Process(self.process.pid).children()
            return [child for child in children if "spawn_main" in " ".join(child.cmdline())]
        return []

    def kill_and_start(self) -> None:
        """SIGKILL to the server and all of its processes, as a loss of power has it."""
        with self._lock:
            for worker in self.workers():
                with suppress(psutil.Error):
                    worker.kill()
            self.process.kill()
            self.process.wait()
            self.start()

    def stop(self) -> float:
        """SIGTERM; how many seconds until the server has ended."""
        workers = self.workers()
        start = time.monotonic()
        self.process.terminate()
        self.process.wait(START_SECONDS)
        seconds = time.monotonic() - start
        _, alive = psutil.wait_procs(workers, timeout=START_SECONDS)
        if alive:
            raise RuntimeError(f"{len(alive)} processes outlived their server")
        return seconds


def search_answer(answer: dict[str, Any]) -> tuple[tuple[str, float, float], ...]:
    """The pages of an answer, to be compared."""
    return tuple(
        (result["page_id"], result["fused_score"], result["readout_score"]) for result in answer["results"]
    )


def call_honestly(
    server: TorturedServer, expected: list[ExpectedRanking], ledger: Ledger, rng: random.Random, stop: Event
) -> None:
    """Send good requests; an answer must be that of one process alone, a refusal is counted."""
    with httpx.Client(base_url=server.address, timeout=REQUEST_SECONDS) as client:
        while not stop.is_set():
            ranking = rng.choice(expected)
            try:
                problem = _ask(client, ranking, ledger, rng)
            except (httpx.HTTPError, ValueError):  # the server was killed meanwhile
                ledger.count("no answer")
                stop.wait(0.2)
                continue
            if problem:
                ledger.record_wrong(problem)
            stop.wait(0.01)


def _ask(client: httpx.Client, ranking: ExpectedRanking, ledger: Ledger, rng: random.Random) -> str | None:
    """Send one request; a sentence where the answer must not be."""
    kind = rng.choice(["search", "score", "image"])
    page_ids = [page_id for page_id, _, _ in ranking.pages]
    if kind == "search":
        answer = client.post("/v1/search", json={"query": ranking.query, "k": K, "top_n": K})
    elif kind == "score":
        answer = client.post("/v1/score", json={"queries": ranking.query, "documents": page_ids})
    else:
        answer = client.get(f"/v1/pages/{rng.choice(page_ids)}/image")
    if answer.status_code != 200:
        ledger.count(f"good request, {answer.status_code}")
        if answer.status_code in (408, 429, 503):
            return None
        if kind == "image" and answer.status_code == 422:  # twice in a row, its process was killed or stopped
            return None
        return f"a good {kind} got {answer.status_code}: {answer.text[:200]}"
    ledger.count(f"good {kind}, answered")
    if kind == "search" and search_answer(answer.json()) != ranking.pages:
        return f"another ranking for {ranking.query!r}"
    if kind == "score":
        scores = [row["score"] for row in answer.json()["data"]]
        if scores != [readout for _, _, readout in ranking.pages]:
            return f"other scores for {ranking.query!r}"
    return None


def call_hostilely(server: TorturedServer, ledger: Ledger, rng: random.Random, stop: Event) -> None:
    """Send what must be refused, and leave connections half done."""
    halves: list[socket.socket] = []
    with httpx.Client(base_url=server.address, timeout=REQUEST_SECONDS) as client:
        while not stop.wait(rng.random() * 0.3):
            if rng.random() < 0.3:
                with suppress(OSError):
                    halves.append(half_request(rng, server.port))
                    ledger.count("half request")
                if len(halves) > OPEN_HALVES:
                    halves.pop(0).close()
                continue
            request = draw_request(rng)
            try:
                answer = client.request(
                    request.method, request.path, content=request.content, headers=request.headers
                )
            except httpx.HTTPError:
                ledger.count("no answer")
                continue
            ledger.count(f"hostile request, {answer.status_code}")
            if not 400 <= answer.status_code < 500 and answer.status_code != 503:
                ledger.record_wrong(f"hostile {request.name} got {answer.status_code}: {answer.text[:200]}")
    for connection in halves:
        connection.close()


def sabotage(
    server: TorturedServer, ledger: Ledger, rng: random.Random, stop: Event, *, pause: float
) -> None:
    """Kill and stop processes of the server at random."""
    while not stop.wait(pause * rng.uniform(0.5, 1.5)):
        fault = rng.choices(["kill worker", "stop worker", "kill server"], weights=[6, 6, 1])[0]
        if fault == "kill server":
            server.kill_and_start()
        else:
            workers = server.workers()
            if not workers:
                continue
            number = signal.SIGKILL if fault == "kill worker" else signal.SIGSTOP
            with suppress(ProcessLookupError):
                os.kill(rng.choice(workers).pid, number)
        ledger.count_fault(fault)


def sample_memory(server: TorturedServer, samples: dict[str, list[float]], stop: Event) -> None:
    """Resident megabytes of every process of the server, by role and id, every few seconds."""
    while not stop.wait(5.0):
        with suppress(psutil.Error):
            processes = {f"main {server.process.pid}": psutil.Process(server.process.pid)}
            processes |= {f"worker {worker.pid}": worker for worker in server.workers()}
            for name, process in processes.items():
                samples.setdefault(name, []).append(round(process.memory_info().rss / 1e6, 1))
