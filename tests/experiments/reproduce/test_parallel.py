"""Stages computed ahead: by processes that tell what they met, or, where those die, not at all."""

from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from experiments.reproduce import parallel as module
from experiments.reproduce.experiment import Experiment
from experiments.reproduce.parallel import ParallelStages, Step
from experiments.reproduce.settings import ExperimentSettings
from experiments.reproduce.stages.stage_progress import SilentProgress

NO_STEPS: list[list[Step]] = [[], []]


class Listener(SilentProgress):
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.done = 0

    def advance(self, count: int = 1) -> None:
        self.done += count

    def echo(self, text: str) -> None:
        self.lines.append(text)


class Pool:
    """Runs tasks at once, here; or dies of the first."""

    def __init__(self, *, dies: bool = False) -> None:
        self.dies = dies
        self.tasks = 0

    def submit(self, run: object, steps: list[Step]) -> "Future[list[str]]":
        self.tasks += 1
        done: Future[list[str]] = Future()
        if self.dies:
            done.set_exception(BrokenProcessPool())
        else:
            done.set_result([f"left out: page {self.tasks}"])
        return done

    def shutdown(self, *, wait: bool, cancel_futures: bool) -> None:
        pass


def make_experiment(work: Path) -> tuple[Experiment, Listener]:
    listener = Listener()
    return Experiment(ExperimentSettings(families=(), backbones=(), retrievers=()), work, listener), listener


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Pool:
    pool = Pool()
    monkeypatch.setattr(module, "ProcessPoolExecutor", lambda *arguments, **options: pool)
    return pool


def test_what_a_process_met_is_told_and_nothing_is_run_twice(tmp_path: Path, pool: Pool) -> None:
    experiment, listener = make_experiment(tmp_path)
    for _ in range(2):
        with ParallelStages(experiment, 2) as parallel:
            parallel.run("corpora", NO_STEPS)
    assert pool.tasks == listener.done == 2
    assert sorted(listener.lines) == ["left out: page 1", "left out: page 2"]


def test_a_dead_process_is_told_and_all_is_left_to_the_run(tmp_path: Path, pool: Pool) -> None:
    experiment, listener = make_experiment(tmp_path)
    pool.dies = True
    with ParallelStages(experiment, 2) as parallel:
        parallel.run("corpora", NO_STEPS)
        parallel.run("more", NO_STEPS)
    assert pool.tasks == 2
    assert listener.lines == ["a process died, for lack of memory perhaps: going on without it, one by one"]
    assert not list(tmp_path.glob("ahead-*"))


def test_one_process_does_nothing_ahead(tmp_path: Path, pool: Pool) -> None:
    experiment, _ = make_experiment(tmp_path)
    with ParallelStages(experiment, 1) as parallel:
        parallel.run("corpora", NO_STEPS)
    assert pool.tasks == 0
