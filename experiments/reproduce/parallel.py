"""Stages that no clock looks at, computed ahead by several processes; the run then finds them on disk.

On a CPU a small model leaves most cores idle, and corpora do not depend on each other. What is timed is not
computed here: it would be timed on a busy machine.
"""

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from experiments.reproduce.experiment import Lab
from experiments.reproduce.settings import Settings
from experiments.reproduce.stages.checkpoint import digest
from experiments.reproduce.stages.stage_progress import Nobody
from ridgerank.atomic import replace_text_file
from ridgerank.worker_process import usable_cores


class Step(NamedTuple):
    """A method of `Lab` and what it is called with; what it returns stays on disk."""

    method: str
    arguments: tuple[Any, ...]


class Ahead:
    """Processes for the stages of one run; with one process there are none, and nothing is done ahead."""

    def __init__(self, lab: Lab, processes: int) -> None:
        self._watcher = lab.watcher
        self._work = lab.work
        self._pool: ProcessPoolExecutor | None = None
        if processes > 1:
            threads = max(1, usable_cores() // processes)
            self._pool = ProcessPoolExecutor(
                processes,
                multiprocessing.get_context("spawn"),
                initializer=_begin,
                initargs=(lab.settings, lab.work, threads),
            )

    def run(self, what: str, tasks: Sequence[Sequence[Step]]) -> None:
        """Run the steps of each task one after the other, tasks side by side; what was run before is left."""
        marker = self._work / f"ahead-{digest(map(repr, tasks))}"
        if self._pool is None or marker.exists():
            return
        self._watcher.start(what, len(tasks))
        try:
            for done in as_completed([self._pool.submit(_run, list(steps)) for steps in tasks]):
                for line in done.result():
                    self._watcher.say(line)
                self._watcher.advance()
        except BrokenProcessPool:
            self._pool = None
            self._watcher.say("a process died, for lack of memory perhaps: going on without it, one by one")
        else:
            with replace_text_file(marker):
                pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=error is None, cancel_futures=True)


def default_processes(settings: Settings) -> int:
    """One process per core for the embedded models on a CPU, else one."""
    import torch

    on_cpu = settings.device == "cpu" or (settings.device is None and not torch.cuda.is_available())
    return usable_cores() if on_cpu and settings.arms == "miniature" else 1


class _Lines(Nobody):
    """A watcher that keeps what is worth a line."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        """Keep it."""
        self.lines.append(text)


_lab: Lab | None = None
"""The lab of a process: its models stay loaded from task to task."""


def _begin(settings: Settings, work: Path, threads: int) -> None:
    import torch

    global _lab
    torch.set_num_threads(threads)
    _lab = Lab(settings, work, Nobody())


def _run(steps: Sequence[Step]) -> list[str]:
    assert _lab is not None
    _lab.watcher = watcher = _Lines()
    for step in steps:
        getattr(_lab, step.method)(*step.arguments)
    return watcher.lines
