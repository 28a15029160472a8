"""Requests that arrive at random, beside a trained text cross encoder behind the same API.

python -m benchmarks.serving_poisson --store pages --queries queries.jsonl --cross-encoder FOLDER
    [--rates 1 2 4] [--seconds 60] [--out results/serving_poisson.json]

For each rate, each server in turn gets `/v1/rerank` requests of twenty stored pages at Poisson times from a
fixed seed, whether or not the ones before are answered. The cross encoder (a folder with model.onnx and
tokenizer.json) reads the same pages' text, in as many threads as there are cores. Prints p50, p95 and p99 in
milliseconds and pairs a second, then one JSON line. Without a store the miniature is drawn.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.report import publish
from benchmarks.serving_load import CANDIDATES, make_store, ready, serving
from ridgerank.store.page_store import PageStore
from ridgerank.worker_process import usable_cores


def main() -> None:
    """Run every rate against both servers, or be one of them (`--serve`)."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", type=Path)
    parser.add_argument("--queries", type=Path)
    parser.add_argument("--cross-encoder", type=Path, required=True)
    parser.add_argument("--rates", type=float, nargs="+", default=[1.0, 2.0, 4.0], help="requests a second")
    parser.add_argument("--seconds", type=float, default=60.0, help="of arrivals, for each rate and server")
    parser.add_argument("--out", type=Path, default=Path("results/serving_poisson.json"))
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve is not None:
        serve_cross_encoder(arguments.store, arguments.cross_encoder, arguments.serve)
        return
    with tempfile.TemporaryDirectory() as scratch:
        store, queries = arguments.store, arguments.queries
        if store is None:
            store, queries = make_store(Path(scratch))
        texts = [json.loads(line)["text"] for line in queries.read_text().splitlines()]
        with PageStore.open(str(store)) as opened:
            page_ids = opened.page_ids()
        rows = []
        with serving(store) as (ours, _), cross_encoder_serving(store, arguments.cross_encoder) as theirs:
            for rate in arguments.rates:
                for name, address in (("RidgeRank", ours), ("text cross encoder", theirs)):
                    row = asyncio.run(arrivals(address, texts, page_ids, rate, arguments.seconds))
                    rows.append({"server": name, "rate": rate, **row})
                    print(json.dumps(rows[-1]), file=sys.stderr)
    publish({"candidates": CANDIDATES, "cores": usable_cores(), "rows": rows}, arguments.out)


async def arrivals(
    address: str, texts: list[str], page_ids: list[str], rate: float, seconds: float
) -> dict[str, Any]:
    """Send requests at Poisson times; latencies of those answered, and how many were refused."""
    random = np.random.default_rng(0)
    count = max(1, round(rate * seconds))
    times = np.cumsum(random.exponential(1 / rate, size=count))
    latencies: list[float] = []
    refused = 0

    async with httpx.AsyncClient(
        base_url=address, timeout=600, limits=httpx.Limits(max_connections=None)
    ) as client:
        await ready(client)
        start = time.perf_counter()

        async def send(number: int) -> None:
            nonlocal refused
            chosen = random.choice(page_ids, size=min(CANDIDATES, len(page_ids)), replace=False).tolist()
            await asyncio.sleep(max(0.0, times[number] - (time.perf_counter() - start)))
            body = {"query": texts[number % len(texts)], "documents": chosen}
            response = await client.post("/v1/rerank", json=body)
            if response.status_code == 200:
                # From when it was due: a queue on this side counts, too.
                latencies.append(time.perf_counter() - start - times[number])
            else:
                refused += 1

        await asyncio.gather(*(send(number) for number in range(count)))
        took = time.perf_counter() - start
    milliseconds = 1000 * np.array(latencies or [np.nan])
    quantiles = {f"p{q}_ms": round(float(np.percentile(milliseconds, q)), 1) for q in (50, 95, 99)}
    pairs = len(latencies) * min(CANDIDATES, len(page_ids)) / took
    return {**quantiles, "pairs_per_second": round(pairs, 1), "requests": count, "refused": refused}


@contextmanager
def cross_encoder_serving(store: Path, model: Path) -> Iterator[str]:
    """The cross encoder in a process of its own: its address."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["--store", store, "--cross-encoder", model, "--serve", port]
    command = [sys.executable, "-m", "benchmarks.serving_poisson", *map(str, words)]
    with subprocess.Popen(command, env=os.environ) as server:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(30)


def serve_cross_encoder(store: Path, model: Path, port: int) -> None:
    """`/v1/rerank` over a store's page texts, a model in each of as many threads as there are cores."""
    from queue import SimpleQueue

    import uvicorn
    from fastapi import FastAPI

    from ridgerank.calibration.onnx_cross_encoder import OnnxCrossEncoder

    with PageStore.open(str(store)) as opened:
        texts = {page.page_id: page.text for page in opened.pages(opened.page_ids())}
    models: SimpleQueue[OnnxCrossEncoder] = SimpleQueue()
    for _ in range(usable_cores()):
        models.put(OnnxCrossEncoder(model))
    app = FastAPI()

    @app.get("/readyz")
    def readyz() -> dict[str, str]:
        return {"status": "ready"}

    @app.post("/v1/rerank")
    def rerank(body: dict[str, Any]) -> dict[str, Any]:
        free = models.get()
        try:
            scores = free.score(body["query"], [texts[page_id] for page_id in body["documents"]])
        finally:
            models.put(free)
        order = np.argsort(-scores, kind="stable")
        return {
            "results": [
                {"index": int(index), "relevance_score": float(scores[index])} for index in order.tolist()
            ]
        }

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main()
