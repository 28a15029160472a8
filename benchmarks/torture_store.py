"""The stores of `benchmarks.torture`: a writer that is killed on a disk that fills up, and bits that flip."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from threading import Event, Thread

import torch

from benchmarks.torture_ledger import Ledger
from benchmarks.torture_server import ExpectedRanking, K
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.load import load_backbone
from ridgerank.calibration.sealed_file import find_damaged_calibrations
from ridgerank.errors import RidgeRankError
from ridgerank.isolated_process import IsolatedProcess, TookTooLong
from ridgerank.ranking.reranker import Reranker
from ridgerank.store.check import find_damage
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import calibrations_folder
from ridgerank.worker_process import WorkerDied

DISK_MEGABYTES = 160
START_SECONDS = 60.0
"""How long a writer may take until its first document is stored."""
NEW_STORE_SHARE = 0.6
"""A disk that is fuller than this gets a new store."""
FILE_LIMIT_BYTES = 60_000
"""The largest file of a writer whose disk is full, where no small disk could be mounted."""


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


class TorturedWriter:
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
            start_end = time.monotonic() + START_SECONDS
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
        command = [sys.executable, "-m", "benchmarks.torture_writer", *arguments]
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


_BACKBONES: list[Backbone] = []


def examine_store(uri: str, expected: list[ExpectedRanking]) -> tuple[bool, str]:
    """Whether the check names damage, and whether answers are the same, refused or different."""
    torch.set_num_threads(1)
    try:
        damage = chain(find_damage(uri), find_damaged_calibrations(calibrations_folder(uri)))
        named = any(True for _ in damage)
    except RidgeRankError:
        named = True
    if not _BACKBONES:
        _BACKBONES.append(load_backbone("mini-qwen"))
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
