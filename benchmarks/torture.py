"""The crasher: indexing, searching and serving while processes are killed, disks fill up and bits flip.

python -m benchmarks.torture [--seconds 600] [--seed N] [--soak] [--out results/torture.json]

A store of the miniature is served by two worker processes. For the time given, at once: callers whose answers
must be those of one process alone, to the last digit; callers who send what must be refused, or half of it;
SIGKILL and SIGSTOP to workers and to the server; a writer that is killed again and again over a disk that
fills up, whose acknowledged pages must all be there; flipped bits, which must be named or change no answer.
With `--soak` nothing is broken, and the memory of every process is looked at.

`lost` and `wrong` must be 0; the exit status says so. The seed is printed and decides what is done and in
which order; how far each actor gets depends on the machine.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.commands import ridgerank
from benchmarks.torture_ledger import Ledger
from benchmarks.torture_server import (
    END_SECONDS,
    ExpectedRanking,
    K,
    TorturedServer,
    call_honestly,
    call_hostilely,
    sabotage,
    sample_memory,
)
from benchmarks.torture_store import TorturedWriter, flip_bits, small_disk
from ridgerank.ranking.reranker import Reranker

QUERIES = 20
CALLERS = 3


def main() -> None:
    """Torture, report, and fail where something was lost or wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--soak", action="store_true", help="break nothing; look at memory")
    parser.add_argument("--pause", type=float, default=8.0, help="mean seconds between faults of one kind")
    parser.add_argument("--store", type=Path, default=None, help="one that `make_store` made before")
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}: run again with --seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="ridgerank-torture-") as scratch:
        store = arguments.store or make_store(Path(scratch))
        lines = (store.parent / "some.jsonl").read_text().splitlines()
        expected = expected_rankings(store, [json.loads(line)["text"] for line in lines])
        report = torture(
            store,
            expected,
            Path(scratch),
            seconds=arguments.seconds,
            seed=seed,
            soak=arguments.soak,
            pause=arguments.pause,
        )
    text = json.dumps(report, indent=1)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n")
    sys.exit(bool(report["lost"] or report["wrong"]))


def make_store(folder: Path) -> Path:
    """A calibrated store of the miniature, with its queries beside it."""
    ridgerank("miniature", "draw", "--out", folder / "alder", "--corpus", "alder")
    lines = (folder / "alder/queries.jsonl").read_text().splitlines()[:QUERIES]
    (folder / "some.jsonl").write_text("\n".join(lines))
    documents = sorted((folder / "alder/documents").glob("*.pdf"))[:2]
    store = folder / "pages"
    models = ("--backbone", "mini-qwen", "--retriever", "mini-colqwen-small")
    ridgerank("index", *documents, "--store", store, *models)
    ridgerank("calibrate", "--store", store, "--queries", folder / "some.jsonl")
    return store


def expected_rankings(store: Path, queries: list[str]) -> list[ExpectedRanking]:
    """What one process, with one thread as each worker has, answers."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with Reranker.open(store) as reranker:
        rankings = [reranker.search(query, k=K, top_k=K) for query in queries]
    torch.set_num_threads(threads)
    return [
        ExpectedRanking(
            ranking.query,
            tuple((page.page_id, page.fused_score, page.readout_score) for page in ranking.pages),
        )
        for ranking in rankings
    ]


def torture(
    store: Path,
    expected: list[ExpectedRanking],
    scratch: Path,
    *,
    seconds: float,
    seed: int,
    soak: bool = False,
    pause: float = 8.0,
) -> dict[str, Any]:
    """Run all actors for a while; the report."""
    ledger, stop = Ledger(), threading.Event()
    samples: dict[str, list[float]] = {}
    rng = random.Random(seed)
    server = TorturedServer(store, scratch)
    with small_disk(scratch / "disk") as mounted:
        writer = TorturedWriter(scratch / "disk", scratch / "written", ledger, draw(rng), mounted=mounted)
        actors: list[Callable[[], None]] = [
            partial(sample_memory, server, samples, stop),
            partial(call_hostilely, server, ledger, draw(rng), stop),
            *(partial(call_honestly, server, expected, ledger, draw(rng), stop) for _ in range(CALLERS)),
        ]
        saboteur, flipper = draw(rng), draw(rng)
        if not soak:
            actors += [
                partial(writer.run, stop, pause=pause),
                partial(flip_bits, store, scratch, expected, ledger, flipper, stop, pause=pause),
                partial(sabotage, server, ledger, saboteur, stop, pause=pause),
            ]
        run_actors(actors, ledger, stop, seconds)
        final_checks(server, expected, ledger, seconds=min(15.0, seconds / 4))
    return {
        "seed": seed,
        "seconds": seconds,
        "mode": "soak" if soak else "torture",
        "disk": "a small file system" if mounted else "a limit on files",
        **ledger.report(),
        "memory_mb": {name: summarize(series) for name, series in samples.items() if len(series) >= 9},
    }


def draw(rng: random.Random) -> random.Random:
    """A generator of an actor's own, so that what it does depends on no other actor."""
    return random.Random(rng.getrandbits(64))


def run_actors(
    actors: list[Callable[[], None]], ledger: Ledger, stop: threading.Event, seconds: float
) -> None:
    """Run each actor in a thread until the time is over; an actor that fails is wrong, too."""

    def guarded(actor: Callable[[], None]) -> None:
        try:
            actor()
        except Exception as error:
            ledger.record_wrong(f"an actor ended: {error!r:.500}")

    threads = [threading.Thread(target=guarded, args=(actor,)) for actor in actors]
    for thread in threads:
        thread.start()
    end = time.monotonic() + seconds
    while time.monotonic() < end and not stop.wait(1.0):
        pass
    stop.set()
    for thread in threads:
        thread.join()


def final_checks(
    server: TorturedServer, expected: list[ExpectedRanking], ledger: Ledger, *, seconds: float
) -> None:
    """After all of it the server answers as ever, and ends in time when it is told to."""
    server.wait_until_ready()
    calm, once = threading.Event(), Ledger()
    timer = threading.Timer(seconds, calm.set)
    timer.start()
    call_honestly(server, expected, once, random.Random(0), calm)
    answered = sum(number for kind, number in once.operations.items() if kind.endswith("answered"))
    ledger.count("answered at the end", answered)
    for note in once.notes:
        ledger.record_wrong(f"at the end: {note}")
    if not answered:
        ledger.record_wrong("at the end the server answers nothing")
    end_seconds = server.stop()
    if end_seconds > END_SECONDS:
        ledger.record_wrong(f"the server took {end_seconds:.1f} s to end")


def summarize(series: list[float]) -> dict[str, float]:
    """A process's megabytes: medians of the second and of the last ninth, and the peak."""
    ninth = len(series) // 9
    return {
        "early": statistics.median(series[ninth : 2 * ninth]),
        "late": statistics.median(series[-ninth:]),
        "peak": max(series),
        "samples": len(series),
    }


if __name__ == "__main__":
    main()
