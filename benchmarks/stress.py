"""Three stores of one server, changed all the time, under constant traffic at half of its capacity.

    python -m benchmarks.stress [--seconds 600] [--seed N] [--out results/stress.json]

Stores of the miniature are served by one process. One after another gets a new document, loses it again, and
gets another weight, without pause. Capacity is measured first, with these changes running: callers who ask
again as soon as they are answered. Then requests come at half of that rate, whether or not others were
answered, to all stores and several routes.

An answer is wrong if it is an error that no limit explains, a page missing that was not removed before, or if
it mixes: a page of another store, another weight than the state that it names, other results than an answer
from the same state had. The exit status says whether there was one. The seed decides what is done in which
order; how far it gets depends on the machine.
"""

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import psutil
from PIL import Image, ImageDraw

from benchmarks import make_store, publish, ridgerank
from benchmarks.serving import ready, serving
from ridgerank.calibration.artifact import Calibration
from ridgerank.fusion.weight import user_estimate
from ridgerank.store.maintenance import list_stored_documents, remove_documents
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import calibrations_folder

STORES = ("first", "second", "third")
CALLERS = 4
DEADLINE_SECONDS = 10
STATE = "X-RidgeRank-State"
_SHOWN = 20
"""Notes kept; the counts are complete."""


@dataclass
class Ledger:
    """What was done and what callers met."""

    changes: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    removed: set[str] = field(default_factory=set)
    """Documents that were removed, or are being removed."""
    answers: dict[tuple[str, str, str], Any] = field(default_factory=dict)
    """State, route and query → the answer that was given first."""
    wrong: int = 0
    notes: list[str] = field(default_factory=list)

    def record(self, note: str) -> None:
        """Count something that is wrong."""
        self.wrong += 1
        self.notes = [*self.notes, note][:_SHOWN]


def main() -> None:
    """Run, report, and fail if something was wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ridgerank-stress-") as scratch:
        made, queries = make_store(Path(scratch), documents=len(STORES))
        stores = {name: Path(shutil.copytree(made, Path(scratch, name))) for name in STORES}
        for path, document in zip(stores.values(), list_stored_documents(PageStore.open(made)), strict=True):
            remove_documents(str(path), [document.name])  # no two have the same pages
        report = stress(stores, queries, Path(scratch), seconds=arguments.seconds, seed=arguments.seed)
    publish(report, arguments.out)
    sys.exit(report["wrong"] > 0)


def stress(
    stores: dict[str, Path], queries: list[str], scratch: Path, *, seconds: float, seed: int
) -> dict[str, Any]:
    """Change the stores and ask for so many seconds, a tenth of them to measure capacity; the report."""
    ledger, stop, rng = Ledger(), Event(), random.Random(seed)
    given = [f"--store={name}={path}" for name, path in stores.items()]
    with serving(*given, "--workers", 1, "--deadline", DEADLINE_SECONDS) as (address, server):
        asyncio.run(_wait(address))
        writer = Thread(target=_change, args=(stores, scratch, ledger, random.Random(seed), stop))
        writer.start()
        try:
            capacity = asyncio.run(_saturate(address, queries, ledger, rng, seconds=seconds / 10))
            ledger.statuses.clear()
            memory = asyncio.run(
                _ask_constantly(address, queries, ledger, rng, server, rate=capacity / 2, seconds=seconds)
            )
        finally:
            stop.set()
            writer.join()
    answered = sum(ledger.statuses.values())
    early = memory[: max(1, len(memory) // 5)]  # up to the second minute of ten
    return {
        "seed": seed,
        "seconds": seconds,
        "capacity": round(capacity, 2),
        "requests": answered,
        "answered_200": round(ledger.statuses[200] / max(1, answered), 4),
        "statuses": {str(status): count for status, count in sorted(ledger.statuses.items())},
        "changes": dict(sorted(ledger.changes.items())),
        "states": len({state for state, _, _ in ledger.answers}),
        "memory_end_over_early": round(memory[-1] / early[-1], 3),
        "wrong": ledger.wrong,
        "notes": ledger.notes,
    }


def _change(stores: dict[str, Path], scratch: Path, ledger: Ledger, rng: random.Random, stop: Event) -> None:
    """Index, remove and recalibrate until told to stop."""
    try:
        while not stop.is_set():
            name, store = rng.choice(list(stores.items()))
            path = _draw_document(scratch, rng)
            ridgerank("index", path, "--store", store)
            ledger.changes["document indexed"] += 1
            calibration = Calibration.load(calibrations_folder(str(store)))
            replace(calibration, weight=user_estimate(rng.random())).save(calibrations_folder(str(store)))
            ledger.changes["weight changed"] += 1
            stop.wait(rng.uniform(0, 5))
            ledger.removed.add(path.name)
            remove_documents(str(store), [path.name])
            ledger.changes["document removed"] += 1
    except (Exception, SystemExit) as error:
        ledger.record(f"the writer of {name} ended: {error!r:.300}")


def _draw_document(folder: Path, rng: random.Random) -> Path:
    """A PDF of one page with a number nobody has drawn before."""
    image = Image.new("RGB", (300, 400), "white")
    ImageDraw.Draw(image).text((20, 40), f"number {rng.getrandbits(64)}", fill="black")
    path = folder / f"document-{rng.getrandbits(48):x}.pdf"
    image.save(path)
    return path


async def _wait(address: str) -> None:
    async with httpx.AsyncClient(base_url=address) as client:
        await ready(client)


async def _saturate(
    address: str, queries: list[str], ledger: Ledger, rng: random.Random, *, seconds: float
) -> float:
    """Answers per second to callers who ask again as soon as they are answered."""
    end = time.monotonic() + seconds

    async def call(client: httpx.AsyncClient) -> None:
        while time.monotonic() < end:
            await _ask(client, queries, ledger, rng)

    await _with_client(address, lambda client: asyncio.gather(*(call(client) for _ in range(CALLERS))))
    return ledger.statuses[200] / seconds


async def _ask_constantly(
    address: str,
    queries: list[str],
    ledger: Ledger,
    rng: random.Random,
    server: int,
    *,
    rate: float,
    seconds: float,
) -> list[int]:
    """Ask at a rate, whatever is answered; the resident memory of the server, every second."""
    process, memory = psutil.Process(server), list[int]()

    async def run(client: httpx.AsyncClient) -> None:
        start = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(int(rate * seconds)):
                await asyncio.sleep(start + number / rate - time.monotonic())
                group.create_task(_ask(client, queries, ledger, rng))
                if time.monotonic() - start > len(memory):
                    memory.append(process.memory_info().rss)

    await _with_client(address, run)
    return memory or [process.memory_info().rss]


async def _with_client(address: str, run: Callable[[httpx.AsyncClient], Awaitable[object]]) -> None:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=address, timeout=120, limits=limits) as client:
        await run(client)


async def _ask(client: httpx.AsyncClient, queries: list[str], ledger: Ledger, rng: random.Random) -> None:
    """One request of a random kind to a random store; what is wrong with its answer is recorded."""
    store, query = rng.choice(STORES), rng.choice(queries)
    body = {"query": query, "k": 12, "top_n": 12}
    answer = await client.post(f"/stores/{store}/v1/search", json=body)
    ledger.statuses[answer.status_code] += 1
    if not _is_good(answer, ledger, f"search of {store}"):
        return
    state, results = answer.headers[STATE], answer.json()["results"]
    if not state.startswith(f"{store}/"):
        ledger.record(f"a search of {store} was answered from {state}")
    _compare(ledger, (state, "weight", ""), answer.json()["weight"])
    _compare(ledger, (state, "search", query), [(each["page_id"], each["fused_score"]) for each in results])
    page = rng.choice(results)
    document = page["reference"].partition("#")[0]
    if rng.random() < 0.5:
        answer = await client.get(page["thumbnail_url"])
    else:
        scored = {"queries": query, "documents": [page["page_id"]]}
        answer = await client.post(f"/stores/{store}/v1/score", json=scored)
    ledger.statuses[answer.status_code] += 1
    if answer.status_code == 404 and document in ledger.removed:
        return
    if _is_good(answer, ledger, f"page of {document}") and not answer.headers[STATE].startswith(f"{store}/"):
        ledger.record(f"a page of {store} was answered from {answer.headers[STATE]}")


def _is_good(answer: httpx.Response, ledger: Ledger, what: str) -> bool:
    """Whether a request was answered; an error that no limit explains is recorded."""
    limited = answer.status_code in (429, 503) and answer.json()["code"] in ("overloaded", "deadline_passed")
    if answer.status_code != 200 and not limited:
        ledger.record(f"a {what} got {answer.status_code}: {answer.text[:200]}")
    return answer.status_code == 200


def _compare(ledger: Ledger, key: tuple[str, str, str], found: object) -> None:
    """Answers from one state are equal."""
    if ledger.answers.setdefault(key, found) != found:
        ledger.record(f"two answers of {key}: {found} and {ledger.answers[key]}")


if __name__ == "__main__":
    main()
