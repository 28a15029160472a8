"""Indexing, searching and serving while processes are killed, disks fill up and bits flip.

    python -m benchmarks.stress [--seconds 600] [--seed N] [--out results/stress.json]

A store of the miniature is served by two worker processes. For the time given, at once: callers whose answers
must be those of one process alone, to the last digit; SIGKILL to workers, to the processes that read images
for them and to the server, and SIGSTOP for some seconds; a writer that is killed again and again, at times
with a limit on files as on a full disk, whose acknowledged pages must all be there; flipped bits, which must
be named or change no answer.

`lost` and `wrong` must be 0; the exit status says so. A request that gets no answer because its worker was
killed or stopped is neither. The seed is printed and decides what is done and in which order; how far each
actor gets depends on the machine.
"""

import argparse
import json
import os
import random
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from threading import Event, Lock, Thread, Timer
from typing import Any

import httpx
import psutil
import torch
from PIL import Image, ImageDraw

from benchmarks import make_store, publish
from miniature import weights
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.load import load_backbone
from ridgerank.calibration.artifact import find_damaged_calibrations
from ridgerank.documents.render import PageRef, list_pages
from ridgerank.errors import RidgeRankError
from ridgerank.indexing.index import index_documents
from ridgerank.processes import IsolatedProcess, TookTooLong, WorkerDied
from ridgerank.reranker.reranker import Reranker
from ridgerank.store.maintenance import find_damage
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import calibrations_folder

QUERIES = 20
DOCUMENTS = 2
WORKERS = 2
CALLERS = 3
_SHOWN = 30
"""Notes kept; the counts are complete."""
START_SECONDS = 300.0
STOPPED_SECONDS = 4.0
"""How long a process is stopped: less than what its supervisor waits before it replaces a worker."""
CALM_SECONDS = 5.0
"""Without faults at the end."""
END_SECONDS = 10.0
"""A server has to end within this after SIGTERM."""
REQUEST_SECONDS = 120.0
K = 12
WRITER_START_SECONDS = 60.0
"""How long a writer may take until its first document is stored."""
FILE_LIMIT_BYTES = 60_000
"""The largest file of a writer whose disk is full."""
_BACKBONES: list[Backbone] = []
_PAUSE_SECONDS = 0.5


class Ledger:
    """Counts of one run, for any number of threads."""

    def __init__(self) -> None:
        self.operations = Counter[str]()
        self.faults = Counter[str]()
        self.lost = self.wrong = 0
        self.notes: list[str] = []
        self._lock = Lock()

    def count(self, operation: str, number: int = 1) -> None:
        """Count something that was done: requests by outcome, pages indexed, stores checked."""
        with self._lock:
            self.operations[operation] += number

    def count_fault(self, fault: str) -> None:
        """Count what was done to a process, a file or a disk."""
        with self._lock:
            self.faults[fault] += 1

    def record(self, note: str, *, lost: int = 0) -> None:
        """Count acknowledged pages that are gone, or else one thing that is wrong."""
        with self._lock:
            self.lost += lost
            self.wrong += not lost
            self.notes = [*self.notes, note][:_SHOWN]

    def report(self) -> dict[str, Any]:
        """The counts, as JSON has them."""
        return {
            "operations": sum(self.operations.values()),
            "kills": sum(number for fault, number in self.faults.items() if fault.startswith("kill")),
            "faults": sum(self.faults.values()),
            "lost": self.lost,
            "wrong": self.wrong,
            "operations_by_kind": dict(sorted(self.operations.items())),
            "faults_by_kind": dict(sorted(self.faults.items())),
            "notes": self.notes,
        }


Answer = tuple[tuple[str, float, float], ...]
"""Page id, fused score and readout score, best first."""


class StressedServer:
    """`ridgerank serve` in a process, which may be killed and is then started again."""

    def __init__(self, store: Path, folder: Path) -> None:
        self._store, self._folder = store, folder
        self._log = folder / "server.log"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self._port}"
        self.start()

    def start(self) -> None:
        """Start the server and wait until it is ready."""
        command = [sys.executable, "-m", "ridgerank.cli.main", "serve", "--store", str(self._store)]
        command += ["--port", str(self._port), "--workers", str(WORKERS), "--encode-missing"]
        command += ["--cache-mb", "64", "--deadline", "60"]
        with self._log.open("ab") as file:
            environment = os.environ | {"TMPDIR": str(self._folder)}
            self.process = psutil.Popen(command, stdout=file, stderr=file, env=environment)
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until all workers have started and the server says that it can answer."""
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            with suppress(httpx.HTTPError):
                # A worker that has started counts its requests in a file named after it.
                files = self._folder.glob("ridgerank-workers-*/counter_*.db")
                started = {file.stem for file in files} & {f"counter_{each.pid}" for each in self.children()}
                if len(started) == WORKERS and httpx.get(f"{self.address}/readyz").is_success:
                    return
            time.sleep(0.3)
        raise RuntimeError(f"the server is not ready; its log ends: {self._log.read_text()[-600:]}")

    def children(self) -> list[psutil.Process]:
        """The workers, and below them the processes that read images."""
        children = []
        for child in self.process.children(recursive=True):
            with suppress(psutil.Error):  # it has ended
                if "spawn_main" in " ".join(child.cmdline()):
                    children.append(child)
        return children

    def kill_and_start(self) -> None:
        """SIGKILL to the server and all of its processes, as a loss of power has it."""
        self.process.suspend()  # so that it starts no worker meanwhile
        killed = [*self.process.children(recursive=True), self.process]
        for process in killed:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(killed)
        self.start()

    def stop(self) -> float:
        """SIGTERM; how many seconds until the server and all of its processes have ended."""
        processes = [*self.children(), self.process]
        start = time.monotonic()
        self.process.terminate()
        _, alive = psutil.wait_procs(processes, timeout=START_SECONDS)
        if alive:
            raise RuntimeError(f"{len(alive)} processes do not end with their server")
        return time.monotonic() - start


class StressedWriter:
    """Writers, one after another, over one store; what they acknowledged must be there."""

    def __init__(self, folder: Path, ledger: Ledger, rng: random.Random) -> None:
        self._folder, self._ledger, self._rng = folder, ledger, rng
        self._acknowledged: set[str] = set()
        self._store, self._log = folder / "pages", folder / "writer.log"
        folder.mkdir(parents=True, exist_ok=True)

    def run(self, stop: Event, *, pause: float) -> None:
        """Start a writer, kill it, look at what is left; again and again."""
        while not stop.is_set():
            process = self._start_writer()
            reader = Thread(target=self._read_lines, args=(process,), daemon=True)
            reader.start()
            stored = len(self._acknowledged)
            end = time.monotonic() + WRITER_START_SECONDS
            while len(self._acknowledged) == stored and time.monotonic() < end and not stop.is_set():
                stop.wait(0.1)  # so that there is something to lose
            stop.wait(pause * self._rng.uniform(0.1, 3.0))
            if process.poll() is not None:
                said = self._log.read_text(errors="replace")[-600:]
                self._ledger.record(f"a writer ended by itself: {said}")
            process.kill()
            process.wait()
            reader.join()
            self._ledger.count_fault("kill writer")
            self._require_all()

    def _start_writer(self) -> "subprocess.Popen[str]":
        arguments = [str(self._store), str(self._folder), str(self._rng.getrandbits(64))]
        if self._rng.random() < 0.3:
            arguments.append(str(FILE_LIMIT_BYTES))
            self._ledger.count_fault("full disk")
        command = [sys.executable, "-m", "benchmarks.stress", "--write", *arguments]
        with self._log.open("wb") as log:
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)

    def _read_lines(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with process.stdout as lines, suppress(ValueError):  # the last line may have been cut
            for told in map(json.loads, lines):
                self._acknowledged.update(told.get("acknowledged", []))
                self._ledger.count("document indexed" if "acknowledged" in told else "document refused")

    def _require_all(self) -> None:
        """Every acknowledged page is stored and whole."""
        if not self._acknowledged:
            return
        try:
            with PageStore.open(self._store) as store:
                missing = self._acknowledged.difference(store.page_ids())
            damage = [f"{each.what}: {each.reason}" for each in find_damage(str(self._store))]
        except RidgeRankError as error:
            self._ledger.record(f"the store cannot be opened: {error}", lost=len(self._acknowledged))
            return
        if missing:
            self._ledger.record(f"{len(missing)} pages gone after a kill", lost=len(missing))
        if damage:
            self._ledger.record(f"a kill left damage: {damage[:2]}")
        self._ledger.count("store checked")


def main() -> None:
    """Run, report, and fail if something was lost or wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--write", nargs="+", help=argparse.SUPPRESS)  # a writer that is started to be killed
    arguments = parser.parse_args()
    if arguments.write:
        write_until_killed(arguments.write)
    seed = random.SystemRandom().randrange(2**32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}: run again with --seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="ridgerank-stress-") as scratch:
        store, queries = make_store(Path(scratch), documents=DOCUMENTS)
        report = stress(store, queries[:QUERIES], Path(scratch), seconds=arguments.seconds, seed=seed)
    publish(report, arguments.out)
    sys.exit(bool(report["lost"] or report["wrong"]))


def expected_rankings(store: Path, queries: Sequence[str]) -> dict[str, Answer]:
    """What one process, with one thread as each worker has, answers to each query."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with Reranker.open(store) as reranker:
        answers = {query: search(reranker, query) for query in queries}
    torch.set_num_threads(threads)
    return answers


def search(reranker: Reranker, query: str) -> Answer:
    """The pages of a ranking, to be compared."""
    pages = reranker.search(query, k=K, top_k=K).pages
    return tuple((page.page_id, page.fused_score, page.readout_score) for page in pages)


def stress(
    store: Path, queries: Sequence[str], scratch: Path, *, seconds: float, seed: int, pause: float = 8.0
) -> dict[str, Any]:
    """Run all actors for a while, with `pause` mean seconds between faults of one kind; the report."""
    ledger, stop = Ledger(), Event()
    rng = random.Random(seed)

    def draw() -> random.Random:
        """A generator of an actor's own, so that what it does depends on no other actor."""
        return random.Random(rng.getrandbits(64))

    def guarded(actor: Callable[[], None]) -> None:
        """An actor that fails is wrong, too."""
        try:
            actor()
        except Exception as error:
            ledger.record(f"an actor ended: {error!r:.500}")

    expected = expected_rankings(store, queries)
    server = StressedServer(store, scratch)
    writer = StressedWriter(scratch / "written", ledger, draw())
    actors: list[Callable[[], None]] = [
        *(partial(call_honestly, server, expected, ledger, draw(), stop) for _ in range(CALLERS)),
        partial(writer.run, stop, pause=pause),
        partial(flip_bits, store, scratch / "flipped", expected, ledger, draw(), stop, pause=pause),
        partial(sabotage, server, ledger, draw(), stop, pause=pause),
    ]
    threads = [Thread(target=guarded, args=(actor,)) for actor in actors]
    for thread in threads:
        thread.start()
    stop.wait(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    guarded(partial(final_checks, server, expected, ledger))
    return {"seed": seed, "seconds": seconds, **ledger.report()}


def final_checks(server: StressedServer, expected: dict[str, Answer], ledger: Ledger) -> None:
    """After all of it the server answers as before, and ends in time when it is told to."""
    server.wait_until_ready()
    calm, once = Event(), Ledger()
    Timer(CALM_SECONDS, calm.set).start()
    call_honestly(server, expected, once, random.Random(0), calm)
    answered = sum(number for kind, number in once.operations.items() if kind.endswith("answered"))
    ledger.count("answered at the end", answered)
    for note in once.notes:
        ledger.record(f"at the end: {note}")
    if not answered:
        ledger.record("at the end the server answers nothing")
    end_seconds = server.stop()
    if end_seconds > END_SECONDS:
        ledger.record(f"the server took {end_seconds:.1f} s to end")


def call_honestly(
    server: StressedServer, expected: dict[str, Answer], ledger: Ledger, rng: random.Random, stop: Event
) -> None:
    """Send good requests; an answer must be that of one process alone, a refusal is counted."""
    with httpx.Client(base_url=server.address, timeout=REQUEST_SECONDS) as client:
        while not stop.is_set():
            query = rng.choice(list(expected))
            try:
                problem = _ask(client, query, expected[query], ledger, rng)
            except httpx.HTTPError:  # what worked on it was killed or stopped
                ledger.count("no answer")
                stop.wait(0.2)
                continue
            if problem:
                ledger.record(problem)
            stop.wait(0.01)


def _ask(
    client: httpx.Client, query: str, expected: Answer, ledger: Ledger, rng: random.Random
) -> str | None:
    """Send one request; a sentence if the answer is wrong."""
    kind = rng.choice(["search", "score", "image"])
    page_ids = [page_id for page_id, _, _ in expected]
    if kind == "search":
        answer = client.post("/v1/search", json={"query": query, "k": K, "top_n": K})
    elif kind == "score":
        answer = client.post("/v1/score", json={"queries": query, "documents": page_ids})
    else:
        answer = client.get(f"/v1/pages/{rng.choice(page_ids)}/image")
    if answer.status_code != 200:
        ledger.count(f"good request, {answer.status_code}")
        # An image gets 422 if the process that reads it was killed or stopped twice in a row.
        excused = (408, 429, 503, *([422] if kind == "image" else []))
        expected_status = answer.status_code in excused
        return None if expected_status else f"a good {kind} got {answer.status_code}: {answer.text[:200]}"
    ledger.count(f"good {kind}, answered")
    if kind == "image":
        return None
    if kind == "search":
        names = ("page_id", "fused_score", "readout_score")
        found = [tuple(result[name] for name in names) for result in answer.json()["results"]]
    else:
        scores = [row["score"] for row in answer.json()["data"]]
        found = [(*page[:2], score) for page, score in zip(expected, scores, strict=True)]
    if found == list(expected):
        return None
    return f"{kind} {query!r}: {found} instead of {expected}"


def sabotage(
    server: StressedServer, ledger: Ledger, rng: random.Random, stop: Event, *, pause: float
) -> None:
    """Kill processes of the server at random, or stop them for a while."""
    while not stop.wait(pause * rng.uniform(0.5, 1.5)):
        fault = rng.choices(["kill", "stop", "kill server"], weights=[6, 6, 1])[0]
        if fault == "kill server":
            server.kill_and_start()
            ledger.count_fault(fault)
            continue
        with suppress(psutil.NoSuchProcess, IndexError):  # it has ended, or there is none at the moment
            process = rng.choice(server.children())
            kind = "worker" if process.ppid() == server.process.pid else "image reader"
            if fault == "kill":
                process.kill()
            else:
                process.suspend()
                stop.wait(STOPPED_SECONDS)
                process.resume()
            ledger.count_fault(f"{fault} {kind}")


def flip_bits(
    store: Path,
    copy: Path,
    expected: dict[str, Answer],
    ledger: Ledger,
    rng: random.Random,
    stop: Event,
    *,
    pause: float,
) -> None:
    """Flip a bit in a copy of the store: it is named, or it changes no answer."""
    process = IsolatedProcess()
    while not stop.wait(pause * rng.uniform(0.5, 1.5)):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(store, copy)
        files = sorted(path for path in copy.rglob("*") if path.is_file() and path.stat().st_size)
        path = rng.choice(files)
        content = bytearray(path.read_bytes())
        at, bit = rng.randrange(len(content)), rng.randrange(8)
        content[at] ^= 1 << bit
        path.write_bytes(content)
        ledger.count_fault("flip bit")
        where = f"bit {bit} of byte {at} of {path.relative_to(copy)}"
        try:
            named, outcome = process.call(
                examine_store, 600.0, str(copy), rng.sample(list(expected.items()), 3)
            )
        except TookTooLong:
            named, outcome = False, "no end"
        except WorkerDied:
            named, outcome = False, "crash"
        except Exception as error:
            named, outcome = False, f"traceback: {error!r:.200}"
        ledger.count(f"flipped store, {'named' if named else 'not named'}, {outcome[:9]}")
        if not named and outcome != "same":
            ledger.record(f"{where}: {outcome}, and the check names nothing")
    process.close()


def examine_store(uri: str, expected: list[tuple[str, Answer]]) -> tuple[bool, str]:
    """Whether the check names damage, and whether answers are the same, refused or different."""
    torch.set_num_threads(1)
    try:
        damage = chain(find_damage(uri), find_damaged_calibrations(calibrations_folder(uri)))
        named = any(True for _ in damage)
    except RidgeRankError:
        named = True
    if not _BACKBONES:
        _BACKBONES.append(load_backbone(weights("mini-qwen")))
    try:
        with Reranker.open(uri, backbone=_BACKBONES[0]) as reranker:
            if any(search(reranker, query) != answer for query, answer in expected):
                return named, "different"
    except RidgeRankError:
        return named, "refused"
    return named, "same"


def write_document(folder: Path, rng: random.Random) -> Path:
    """A PDF of one to three pages with a number nobody has drawn before."""
    pages = []
    for _ in range(rng.randint(1, 3)):
        image = Image.new("RGB", (300, 400), "white")
        ImageDraw.Draw(image).text((20, 40), f"number {rng.getrandbits(64)}", fill="black")
        pages.append(image)
    path = folder / f"document-{rng.getrandbits(48):x}.pdf"
    pages[0].save(path, save_all=True, append_images=pages[1:])
    return path


def write_until_killed(arguments: list[str]) -> None:
    """Index small documents until killed, and print the page ids that were acknowledged.

    With a fourth argument no file may grow beyond so many bytes, as on a disk that is full.
    """
    store, folder, rng = arguments[0], Path(arguments[1]), random.Random(arguments[2])
    backbone = load_backbone(weights("mini-qwen"))
    if len(arguments) > 3:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(arguments[3]), int(arguments[3])))
    while True:
        try:
            path = write_document(folder, rng)
            page_ids = [ref.page_id for ref in list_pages([path]) if isinstance(ref, PageRef)]
            report = index_documents(path, store, backbone, preset="paper", processes=0)
            reasons = "; ".join(str(failure) for failure in report.failures)
            line = {"refused": reasons} if reasons else {"acknowledged": page_ids}
            path.unlink()
        except (RidgeRankError, OSError) as error:
            line = {"refused": str(error)[:300]}
            time.sleep(_PAUSE_SECONDS)
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
