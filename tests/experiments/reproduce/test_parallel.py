"""Stages computed ahead: by processes that tell what they met, or, where those die, not at all."""

from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from experiments.reproduce import parallel as module
from experiments.reproduce.experiment import Lab
from experiments.reproduce.parallel import Ahead, Step
from experiments.reproduce.settings import Settings
from experiments.reproduce.stages.stage_progress import Nobody

NO_STEPS: list[list[Step]] = [[], []]


class Listener(Nobody):
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.done = 0

    def advance(self, count: int = 1) -> None:
        self.done += count

    def say(self, text: str) -> None:
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


def a_lab(work: Path) -> tuple[Lab, Listener]:
    listener = Listener()
    return Lab(Settings(families=(), backbones=(), retrievers=()), work, listener), listener


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Pool:
    made = Pool()
    monkeypatch.setattr(module, "ProcessPoolExecutor", lambda *rest, **options: made)
    return made


def test_what_a_process_met_is_told_and_nothing_is_run_twice(tmp_path: Path, pool: Pool) -> None:
    lab, listener = a_lab(tmp_path)
    for _ in range(2):
        with Ahead(lab, 2) as ahead:
            ahead.run("corpora", NO_STEPS)
    assert pool.tasks == listener.done == 2
    assert sorted(listener.lines) == ["left out: page 1", "left out: page 2"]


def test_a_dead_process_is_told_and_all_is_left_to_the_run(tmp_path: Path, pool: Pool) -> None:
    lab, listener = a_lab(tmp_path)
    pool.dies = True
    with Ahead(lab, 2) as ahead:
        ahead.run("corpora", NO_STEPS)
        ahead.run("more", NO_STEPS)
    assert pool.tasks == 2
    assert listener.lines == ["a process died, for lack of memory perhaps: going on without it, one by one"]
    assert not list(tmp_path.glob("ahead-*"))


def test_one_process_does_nothing_ahead(tmp_path: Path, pool: Pool) -> None:
    lab, _ = a_lab(tmp_path)
    with Ahead(lab, 1) as ahead:
        ahead.run("corpora", NO_STEPS)
    assert pool.tasks == 0
