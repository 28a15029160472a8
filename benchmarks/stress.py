"""Indexing, searching and serving while processes are killed, disks fill up and bits flip.

    python -m benchmarks.stress [--seconds 600] [--seed N] [--out results/stress.json]

A store of the miniature is served by two worker processes. For the time given, at once: callers whose answers
must be those of one process alone, to the last digit; callers who send what must be refused, or half of it;
SIGKILL and SIGSTOP to workers and to the server; a writer that is killed again and again over a disk that
fills up, whose acknowledged pages must all be there; flipped bits, which must be named or change no answer.

`lost` and `wrong` must be 0; the exit status says so. The seed is printed and decides what is done and in
which order; how far each actor gets depends on the machine.
"""

import argparse
import base64
import io
import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import httpx
import psutil
import torch
from PIL import Image, ImageDraw

from benchmarks.report import ridgerank
from miniature import weights
from miniature.corpora import find_plan, make_corpus
from miniature.draw import draw_corpus
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.load import load_backbone
from ridgerank.calibration.artifact import find_damaged_calibrations
from ridgerank.documents.render import PageRef, list_pages
from ridgerank.errors import RidgeRankError
from ridgerank.indexing.index import index_documents
from ridgerank.isolated_process import IsolatedProcess, TookTooLong
from ridgerank.reranker.reranker import Reranker
from ridgerank.store.maintenance import find_damage
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import calibrations_folder
from ridgerank.worker_process import WorkerDied

QUERIES = 20
CALLERS = 3
_SHOWN = 30
"""Notes kept; the counts are complete."""
START_SECONDS = 300.0
END_SECONDS = 10.0
"""A server has to end within this after SIGTERM."""
REQUEST_SECONDS = 120.0
K = 12
OPEN_HALVES = 40
"""Connections with half a request that a hostile caller keeps open."""
DISK_MEGABYTES = 160
WRITER_START_SECONDS = 60.0
"""How long a writer may take until its first document is stored."""
NEW_STORE_SHARE = 0.6
"""A disk that is fuller than this gets a new store."""
FILE_LIMIT_BYTES = 60_000
"""The largest file of a writer whose disk is full, where no small disk could be mounted."""
_BACKBONES: list[Backbone] = []
_PAUSE_SECONDS = 0.5
_PATHS = ("/v1/search", "/v1/rerank", "/v2/rerank", "/rerank", "/v1/score", "/v1/explain")


@dataclass
class Ledger:
    """Counts of one run, for any number of threads."""

    operations: Counter[str] = field(default_factory=Counter)
    """What was done: requests by outcome, pages indexed, stores checked."""
    faults: Counter[str] = field(default_factory=Counter)
    """What was done to the processes, files and disks."""
    lost: int = 0
    """Pages that a writer had acknowledged and the store no longer has."""
    wrong: int = 0
    """Answers that differ from those of one process, faults of the server's own, damage nobody names."""
    notes: list[str] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def count(self, operation: str, number: int = 1) -> None:
        """Count something that was done."""
        with self._lock:
            self.operations[operation] += number

    def count_fault(self, fault: str) -> None:
        """Count a fault that was made."""
        with self._lock:
            self.faults[fault] += 1

    def record_wrong(self, note: str) -> None:
        """Count something that must not be."""
        with self._lock:
            self.wrong += 1
            self.notes = [*self.notes, note][:_SHOWN]

    def record_lost(self, pages: int, note: str) -> None:
        """Count acknowledged pages that are gone."""
        with self._lock:
            self.lost += pages
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


@dataclass(frozen=True, slots=True)
class ExpectedRanking:
    """What one process alone answers to a query."""

    query: str
    pages: tuple[tuple[str, float, float], ...]
    """Page id, fused score and readout score, best first."""


class StressedServer:
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


class StressedWriter:
    """Writers, one after another, over one store; what they acknowledged must be there."""

    def __init__(
        self, disk: Path, folder: Path, ledger: Ledger, rng: random.Random, *, mounted: bool
    ) -> None:
        self._disk, self._folder, self._ledger, self._rng, self._mounted = disk, folder, ledger, rng, mounted
        self._acknowledged: set[str] = set()
        self._refusals = 0
        self._store = disk / "pages-0"
        self._log = folder / "writer.log"
        folder.mkdir(parents=True, exist_ok=True)

    def run(self, stop: Event, *, pause: float) -> None:
        """Start a writer, spoil its work, look at what is left; again and again."""
        while not stop.is_set():
            limit = [] if self._mounted or self._rng.random() < 0.7 else [str(FILE_LIMIT_BYTES)]
            process = self._start_writer(limit)
            reader = Thread(target=self._read_lines, args=(process,), daemon=True)
            reader.start()
            stored = len(self._acknowledged)
            start_end = time.monotonic() + WRITER_START_SECONDS
            while len(self._acknowledged) == stored and time.monotonic() < start_end and not stop.is_set():
                stop.wait(0.1)  # so that there is something to lose
            end = time.monotonic() + pause * self._rng.uniform(0.1, 3.0)
            while time.monotonic() < end and not stop.is_set() and process.poll() is None:
                stop.wait(pause * self._rng.uniform(0.1, 0.5))
                if self._mounted and self._rng.random() < 0.3:
                    self._fill_disk(stop)
            if process.poll() is not None:
                said = self._log.read_text(errors="replace")[-600:]
                self._ledger.record_wrong(f"a writer ended by itself: {said}")
            process.kill()
            process.wait()
            reader.join()
            if process.stdout is not None:
                process.stdout.close()
            self._ledger.count_fault("kill writer")
            self._require_all()
            self._renew_store()

    def _start_writer(self, limit: list[str]) -> "subprocess.Popen[str]":
        if limit:
            self._ledger.count_fault("full disk")
        seed = str(self._rng.getrandbits(64))
        arguments = [str(self._store), str(self._folder), seed, *limit]
        command = [sys.executable, "-m", "benchmarks.stress", "--write", *arguments]
        with self._log.open("wb") as log:
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)

    def _read_lines(self, process: "subprocess.Popen[str]") -> None:
        for line in process.stdout or ():
            with suppress(ValueError):  # the last line may have been cut
                told = json.loads(line)
                self._acknowledged.update(told.get("acknowledged", []))
                self._ledger.count("document indexed" if "acknowledged" in told else "document refused")

    def _fill_disk(self, stop: Event) -> None:
        ballast = self._disk / "ballast"
        with suppress(OSError), ballast.open("wb") as file:
            while True:
                file.write(bytes(1 << 20))
                file.flush()
        self._ledger.count_fault("full disk")
        stop.wait(self._rng.uniform(0.5, 4.0))
        ballast.unlink()

    def _require_all(self) -> None:
        """Every acknowledged page is stored and whole."""
        if not self._acknowledged:
            return
        try:
            with PageStore.open(self._store) as store:
                missing = self._acknowledged.difference(store.page_ids())
            damage = [f"{each.what}: {each.reason}" for each in find_damage(str(self._store))]
        except RidgeRankError as error:
            self._ledger.record_lost(len(self._acknowledged), f"the store cannot be opened: {error}")
            return
        if missing:
            self._ledger.record_lost(len(missing), f"{len(missing)} pages gone after a kill")
        if damage:
            self._ledger.record_wrong(f"a kill left damage: {damage[:2]}")
        self._ledger.count("store checked")

    def _renew_store(self) -> None:
        usage = shutil.disk_usage(self._disk)
        if self._mounted and usage.used > NEW_STORE_SHARE * usage.total:
            shutil.rmtree(self._store)
            self._acknowledged.clear()
            self._store = self._disk / f"pages-{self._rng.getrandbits(32)}"


@dataclass(frozen=True, slots=True)
class HostileRequest:
    """A request that must be answered by a status from 400 to 499."""

    name: str
    method: str
    path: str
    content: bytes
    headers: dict[str, str]


def main() -> None:
    """Run, report, and fail if something was lost or wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--pause", type=float, default=8.0, help="mean seconds between faults of one kind")
    parser.add_argument("--store", type=Path, default=None, help="one that `make_store` made before")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--write", nargs="+", help=argparse.SUPPRESS)  # a writer that is started to be killed
    arguments = parser.parse_args()
    if arguments.write:
        write_until_killed(arguments.write)
    seed = random.SystemRandom().randrange(2**32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}: run again with --seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="ridgerank-stress-") as scratch:
        store = arguments.store or make_store(Path(scratch))
        lines = (store.parent / "some.jsonl").read_text().splitlines()
        expected = expected_rankings(store, [json.loads(line)["text"] for line in lines])
        report = stress(
            store,
            expected,
            Path(scratch),
            seconds=arguments.seconds,
            seed=seed,
            pause=arguments.pause,
        )
    text = json.dumps(report, indent=1)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n")
    sys.exit(bool(report["lost"] or report["wrong"]))


def make_store(folder: Path) -> Path:
    """A calibrated store of the miniature, with its queries beside it."""
    for _ in draw_corpus(make_corpus(find_plan("alder")), folder / "alder"):
        pass
    lines = (folder / "alder/queries.jsonl").read_text().splitlines()[:QUERIES]
    (folder / "some.jsonl").write_text("\n".join(lines))
    documents = sorted((folder / "alder/documents").glob("*.pdf"))[:2]
    store = folder / "pages"
    models = ("--backbone", str(weights("mini-qwen")), "--retriever", str(weights("mini-colqwen-small")))
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


def stress(
    store: Path,
    expected: list[ExpectedRanking],
    scratch: Path,
    *,
    seconds: float,
    seed: int,
    pause: float = 8.0,
) -> dict[str, Any]:
    """Run all actors for a while; the report."""
    ledger, stop = Ledger(), threading.Event()
    rng = random.Random(seed)
    server = StressedServer(store, scratch)
    with small_disk(scratch / "disk") as mounted:
        writer = StressedWriter(scratch / "disk", scratch / "written", ledger, draw(rng), mounted=mounted)
        actors: list[Callable[[], None]] = [
            partial(call_hostilely, server, ledger, draw(rng), stop),
            *(partial(call_honestly, server, expected, ledger, draw(rng), stop) for _ in range(CALLERS)),
            partial(writer.run, stop, pause=pause),
            partial(flip_bits, store, scratch, expected, ledger, draw(rng), stop, pause=pause),
            partial(sabotage, server, ledger, draw(rng), stop, pause=pause),
        ]
        run_actors(actors, ledger, stop, seconds)
        final_checks(server, expected, ledger, seconds=min(15.0, seconds / 4))
    return {
        "seed": seed,
        "seconds": seconds,
        "disk": "a small file system" if mounted else "a limit on files",
        **ledger.report(),
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
    server: StressedServer, expected: list[ExpectedRanking], ledger: Ledger, *, seconds: float
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


def search_answer(answer: dict[str, Any]) -> tuple[tuple[str, float, float], ...]:
    """The pages of an answer, to be compared."""
    return tuple(
        (result["page_id"], result["fused_score"], result["readout_score"]) for result in answer["results"]
    )


def call_honestly(
    server: StressedServer, expected: list[ExpectedRanking], ledger: Ledger, rng: random.Random, stop: Event
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


def call_hostilely(server: StressedServer, ledger: Ledger, rng: random.Random, stop: Event) -> None:
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
    server: StressedServer, ledger: Ledger, rng: random.Random, stop: Event, *, pause: float
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


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """Mount a small file system in memory at a folder; False where that is not allowed."""
    folder.mkdir(parents=True)
    options = ["-t", "tmpfs", "-o", f"size={DISK_MEGABYTES}m", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(["mount", *options], capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=False)


def flip_bits(
    store: Path,
    scratch: Path,
    expected: list[ExpectedRanking],
    ledger: Ledger,
    rng: random.Random,
    stop: Event,
    *,
    pause: float,
) -> None:
    """Flip a bit in a copy of the store: it is named, or it changes no answer."""
    process = IsolatedProcess()
    copy = scratch / "flipped"
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
            named, outcome = process.call(examine_store, 600.0, str(copy), rng.sample(expected, 3))
        except TookTooLong:
            named, outcome = False, "no end"
        except WorkerDied:
            named, outcome = False, "crash"
        except Exception as error:
            named, outcome = False, f"traceback: {error!r:.200}"
        ledger.count(f"flipped store, {'named' if named else 'not named'}, {outcome[:9]}")
        if not named and outcome != "same":
            ledger.record_wrong(f"{where}: {outcome}, and the check names nothing")
    process.close()


def examine_store(uri: str, expected: list[ExpectedRanking]) -> tuple[bool, str]:
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
            for ranking in expected:
                pages = reranker.search(ranking.query, k=K, top_k=K).pages
                if (
                    tuple((page.page_id, page.fused_score, page.readout_score) for page in pages)
                    != ranking.pages
                ):
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

    With a fourth argument no file may grow beyond so many bytes: a disk that is full, for machines on which
    no small file system can be mounted.
    """
    store, folder, rng = arguments[0], Path(arguments[1]), random.Random(arguments[2])
    backbone = load_backbone(weights("mini-qwen"))
    if len(arguments) > 3:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(arguments[3]), int(arguments[3])))
    while True:
        try:
            path = write_document(folder, rng)
            page_ids = [ref.page_id for ref in list_pages([path]) if isinstance(ref, PageRef)]
            report = index_documents(path, store, backbone, processes=1)
            reasons = "; ".join(str(failure) for failure in report.failures)
            line = {"refused": reasons} if reasons else {"acknowledged": page_ids}
            path.unlink()
        except (RidgeRankError, OSError) as error:
            line = {"refused": str(error)[:300]}
            time.sleep(_PAUSE_SECONDS)
        print(json.dumps(line), flush=True)


def draw_request(rng: random.Random) -> HostileRequest:
    """One of many kinds."""
    name, content = rng.choice(_BODIES)(rng)
    headers = {"content-type": "application/json"}
    if rng.random() < 0.1:
        name, headers = "wrong type", {"content-type": rng.choice(["text/plain", "application/xml", ""])}
    if rng.random() < 0.1:
        path = rng.choice(
            [*(f"/v1/pages/{name}/image" for name in ("%2e%2e%2f" * 5 + "etc", "0" * 64)), "/v1", "/v1//x"]
        )
        return HostileRequest("path", "GET", path, b"", {"range": "bytes=0-,9-1", "if-none-match": "," * 900})
    if rng.random() < 0.05:
        return HostileRequest("host", "POST", "/v1/search", b"{}", {**headers, "host": "evil.example"})
    if rng.random() < 0.05:
        method = rng.choice(["DELETE", "PUT", "PATCH", "TRACE"])
        return HostileRequest("method", method, rng.choice(_PATHS), content, headers)
    return HostileRequest(name, "POST", rng.choice(_PATHS), content, headers)


def _noise(rng: random.Random) -> tuple[str, bytes]:
    return "noise", rng.randbytes(rng.randint(0, 2000))


def _cut(rng: random.Random) -> tuple[str, bytes]:
    whole = json.dumps({"query": "costs", "documents": ["a.pdf#1"], "k": 5}).encode()
    return "cut", whole[: rng.randint(0, len(whole) - 1)]


def _deep(rng: random.Random) -> tuple[str, bytes]:
    depth = rng.randint(1000, 50_000)
    return "deep", b'{"query": ' + b"[" * depth + b"]" * depth + b"}"


def _keys(rng: random.Random) -> tuple[str, bytes]:
    return "keys", json.dumps({f"key {number}": 0 for number in range(rng.randint(100, 30_000))}).encode()


def _values(rng: random.Random) -> tuple[str, bytes]:
    return "values", json.dumps({"query": "x", "documents": [{}] * rng.randint(1, 5000)}).encode()


def _rare(rng: random.Random) -> tuple[str, bytes]:
    letters = "".join(chr(rng.randint(0x4E00, 0x9FFF)) for _ in range(1900))
    return "rare", json.dumps({"query": letters, "k": 192}).encode()


def _extreme(rng: random.Random) -> tuple[str, bytes]:
    number = rng.choice(["1e999", "-1e999", "NaN", "9" * 400, "-0.0", "true", '"5"', "null", "[]", "1e400"])
    field = rng.choice(["k", "top_n", "deadline_ms", "min_score", "retriever_scores"])
    return "extreme", f'{{"query": [1], "{field}": {number}}}'.encode()


def _image(rng: random.Random) -> tuple[str, bytes]:
    encoded = io.BytesIO()
    size = rng.randint(8, 200), rng.randint(8, 200)
    noise = Image.frombytes("L", size, rng.randbytes(size[0] * size[1]))
    noise.convert("RGB").save(encoded, rng.choice(["PNG", "JPEG", "TIFF", "WEBP"]))
    data = bytearray(encoded.getvalue()[: rng.randint(20, 4000)])
    data[:4] = rng.randbytes(4)
    uri = f"data:image/{rng.choice(['png', 'jpeg', 'webp', 'tiff'])};base64,{base64.b64encode(data).decode()}"
    return "image", json.dumps({"query": "x", "documents": [{"image": uri}]}).encode()


def _scans(rng: random.Random) -> tuple[str, bytes]:
    encoded = io.BytesIO()
    Image.new("RGB", (2000, 2000)).save(encoded, "JPEG", progressive=True)
    data = encoded.getvalue()
    last = data.rindex(b"\xff\xda")
    data = data[:last] + data[last:-2] * rng.randint(100, 2000) + b"\xff\xd9"
    uri = f"data:image/jpeg;base64,{base64.b64encode(data).decode()}"
    return "scans", json.dumps({"query": "x", "documents": [{"image": uri}]}).encode()


def _names(rng: random.Random) -> tuple[str, bytes]:
    name = rng.choice(["../../etc/passwd#1", "a\0#1", "'; DROP#1", "http://169.254.169.254/", "#", "\ud800"])
    return "names", json.dumps({"query": "x", "documents": [name], "page": name}).encode()


def half_request(rng: random.Random, port: int) -> socket.socket:
    """A connection that has sent part of a request, or nothing, and is left open."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    head = b"POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 16000000\r\n\r\n"
    connection.sendall(rng.choice([b"", head[: rng.randint(1, 60)], head + b"{" * rng.randint(0, 90_000)]))
    return connection


_BODIES = (_noise, _cut, _deep, _keys, _values, _rare, _extreme, _image, _scans, _names)


if __name__ == "__main__":
    main()
