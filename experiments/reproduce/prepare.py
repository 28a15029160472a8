"""All stages in the order in which each model is loaded once; what is not timed, by several processes.

On a CPU a small model leaves most cores idle, and corpora do not depend on each other. Stages that are timed
are not computed by several processes: they would be timed on a busy machine.
"""

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from experiments.reproduce.experiment import CorpusKey, Experiment, calibration_sample
from experiments.reproduce.settings import ExperimentSettings
from experiments.reproduce.stages.checkpoint import SilentProgress, short_digest
from ridgerank.atomic import replace_text_file
from ridgerank.processes import usable_cores

if TYPE_CHECKING:
    from experiments.baselines.load import BaselineRole


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


class Need(StrEnum):
    """What a table or figure is computed from, beside candidates."""

    FIRST = "states and margins of the first family"
    ALL = "states and margins of every corpus"
    DEEP = "deep pools of the first family"
    LAYERS = "states of the calibration sample at every layer"
    BASELINES = "scores of the baselines"


def prepare(experiment: Experiment, needs: frozenset[Need], *, processes: int = 1) -> None:
    """Compute what is missing of what is needed, what is not timed by several processes."""
    settings = experiment.settings
    corpus_keys = experiment.corpus_keys() if Need.ALL in needs else experiment.corpus_keys(0)
    with ParallelStages(experiment, processes) as parallel:
        parallel.run(
            "corpora embedded",
            [
                [Step("vectors", (corpus_key, retriever))]
                for retriever in settings.retrievers
                for corpus_key in corpus_keys
            ],
        )
        for retriever in settings.retrievers:
            for corpus_key in corpus_keys:
                experiment.pools(corpus_key, retriever)
        parallel.run(
            "corpora indexed, margins taken",
            [
                untimed_steps(experiment, corpus_key, backbone, needs)
                for backbone in settings.backbones
                for corpus_key in corpus_keys
            ],
        )
    for backbone in settings.backbones:
        for corpus_key in corpus_keys:
            for retriever in settings.retrievers:
                experiment.margins(corpus_key, backbone, retriever)
                experiment.states(corpus_key, backbone, retriever)
        if Need.LAYERS in needs:
            sample = calibration_sample(experiment)
            for corpus_key in experiment.corpus_keys(0):
                experiment.layers(corpus_key, backbone, sample[corpus_key.number])
        if Need.DEEP in needs:
            for corpus_key in experiment.corpus_keys(0):
                experiment.deeper(corpus_key, backbone, settings.retrievers[0])
    for role in ROLES if Need.BASELINES in needs else ():
        experiment.models.release()
        for retriever in settings.retrievers:
            if role in roles_behind(settings, retriever):
                for corpus_key in corpus_keys:
                    experiment.baseline_scores(corpus_key, retriever, role)
        if Need.DEEP in needs and role in DEEP_ROLES:
            for corpus_key in experiment.corpus_keys(0):
                experiment.baseline_scores(
                    corpus_key, settings.retrievers[0], role, candidates=settings.deepest
                )
    experiment.models.release()


def untimed_steps(
    experiment: Experiment, corpus_key: CorpusKey, backbone: str, needs: frozenset[Need]
) -> list[Step]:
    """What a corpus needs of a backbone and is not timed."""
    settings = experiment.settings
    steps = [Step("margins", (corpus_key, backbone, retriever)) for retriever in settings.retrievers]
    if Need.LAYERS in needs and corpus_key.family == 0:
        steps.append(
            Step("layers", (corpus_key, backbone, calibration_sample(experiment)[corpus_key.number]))
        )
    if Need.DEEP in needs and corpus_key.family == 0:
        steps.append(Step("deeper", (corpus_key, backbone, settings.retrievers[0])))
    return steps


ROLES: tuple["BaselineRole", ...] = ("text retriever", "GQR", "text reranker", "image reranker")
DEEP_ROLES: tuple["BaselineRole", ...] = ("text retriever", "text reranker")
"""The baselines that the study of pool depth compares with (§B.5)."""


def roles_behind(settings: ExperimentSettings, retriever: str) -> tuple["BaselineRole", ...]:
    """The baselines behind a retriever: GQR behind the first only, as in the paper."""
    first = retriever == settings.retrievers[0]
    return ROLES if first else tuple(role for role in ROLES if role != "GQR")
