import os
from collections.abc import Iterator
from functools import partial

import pytest

from ridgerank.errors import DocumentError
from ridgerank.processes import TASKS_AHEAD, map_in_order
from tests.documents import pool_tasks


def _lost(task: int, fate: str) -> int:
    return -task


@pytest.mark.parametrize("processes", [0, 1, 2])
def test_results_come_in_the_order_of_the_tasks(processes: int) -> None:
    results = map_in_order(
        range(30), partial(pool_tasks.doubling, {0: 0.2}), on_lost=_lost, processes=processes
    )
    assert list(results) == [2 * task for task in range(30)]


def test_processes_that_cannot_start_are_an_error_not_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ridgerank.processes._answer_calls", pool_tasks.exit_with_3)
    with pytest.raises(DocumentError, match=r"do not start \(exit status 3"):
        list(map_in_order(range(3), pool_tasks.doubling, on_lost=_lost, processes=2))


@pytest.mark.parametrize("processes", [0, 2])
def test_tasks_are_drawn_only_a_few_ahead_of_what_is_taken(processes: int) -> None:
    drawn = 0

    def endless() -> Iterator[int]:
        nonlocal drawn
        while True:
            drawn += 1
            yield drawn

    results = map_in_order(endless(), pool_tasks.doubling, on_lost=_lost, processes=processes)
    for yielded in range(1, 101):
        next(results)
        assert drawn <= yielded + TASKS_AHEAD * max(1, processes)
    results.close()


def _running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_processes_end_when_the_results_are_abandoned() -> None:
    results = map_in_order(range(1000), pool_tasks.naming_the_process, on_lost=_lost, processes=2)
    processes = {next(results) for _ in range(20)}
    assert all(map(_running, processes))
    assert os.getpid() not in processes
    results.close()
    assert not any(map(_running, processes))
