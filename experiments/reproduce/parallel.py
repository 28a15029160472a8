"""Stages that are not timed, computed beforehand by several processes; the run then finds them on disk.

On a CPU a small model leaves most cores idle, and corpora do not depend on each other. Stages that are timed
are not computed here: they would be timed on a busy machine.
"""

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from experiments.reproduce.experiment import Experiment
from experiments.reproduce.settings import ExperimentSettings
from experiments.reproduce.stages.checkpoint import short_digest
from experiments.reproduce.stages.stage_progress import SilentProgress
from ridgerank.atomic import replace_text_file
from ridgerank.processes import usable_cores


class Step(NamedTuple):
    """A method of `Experiment` and what it is called with; what it returns stays on disk."""

    method: str
    arguments: tuple[Any, ...]


class ParallelStages:
    """Processes for the stages of one run; with one process nothing is computed beforehand."""

    def __init__(self, experiment: Experiment, processes: int) -> None:
        self._progress = experiment.progress
        self._work = experiment.work
        self._pool: ProcessPoolExecutor | None = None
        if processes > 1:
            threads = max(1, usable_cores() // processes)
            self._pool = ProcessPoolExecutor(
                processes,
                multiprocessing.get_context("spawn"),
                initializer=_start_process,
                initargs=(experiment.settings, experiment.work, threads),
            )

    def run(self, what: str, tasks: Sequence[Sequence[Step]]) -> None:
        """Run the steps of each task in order, tasks in parallel; tasks of an earlier run are skipped."""
        marker = self._work / f"ahead-{short_digest(map(repr, tasks))}"
        if self._pool is None or marker.exists():
            return
        self._progress.start(what, len(tasks))
        try:
            for done in as_completed([self._pool.submit(_run_steps, list(steps)) for steps in tasks]):
                for line in done.result():
                    self._progress.echo(line)
                self._progress.advance()
        except BrokenProcessPool:
            self._pool = None
            self._progress.echo("a process died, for lack of memory perhaps: going on without it, one by one")
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


def choose_processes(settings: ExperimentSettings) -> int:
    """One process per core for the embedded models on a CPU, else one."""
    import torch

    on_cpu = settings.device == "cpu" or (settings.device is None and not torch.cuda.is_available())
    return usable_cores() if on_cpu and settings.baselines == "miniature" else 1


class _CollectedLines(SilentProgress):
    """Progress that collects the lines to print."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def echo(self, text: str) -> None:
        """Keep it."""
        self.lines.append(text)


_experiment: Experiment | None = None
"""The experiment of a process: its models stay loaded from task to task."""


def _start_process(settings: ExperimentSettings, work: Path, threads: int) -> None:
    import torch

    global _experiment
    torch.set_num_threads(threads)
    _experiment = Experiment(settings, work, SilentProgress())


def _run_steps(steps: Sequence[Step]) -> list[str]:
    assert _experiment is not None
    _experiment.progress = progress = _CollectedLines()
    for step in steps:
        getattr(_experiment, step.method)(*step.arguments)
    return progress.lines
