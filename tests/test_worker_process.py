"""A process behind a pipe: it answers, and however it ends, this side learns of it."""

import os
import signal
from multiprocessing.connection import Connection

import pytest

from ridgerank.worker_process import WorkerProcess, answer_messages, usable_cores


def double(pipe: Connection) -> None:
    answer_messages(pipe, lambda number: 2 * number, ready="ready")


def exit_with(pipe: Connection, code: int) -> None:
    os._exit(code)


def ignore_the_end(pipe: Connection) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pipe.send(signal.getsignal(signal.SIGINT))
    signal.pause()


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_says_that_it_is_ready_and_answers_until_the_pipe_closes() -> None:
    process = WorkerProcess(double)
    pid = process.pid
    assert pid is not None
    assert process.pipe.recv() == "ready"
    for number in (1, 2, 3):
        process.pipe.send(number)
        assert process.pipe.recv() == 2 * number
    process.stop()
    assert not running(pid)


def test_the_end_of_the_process_is_the_end_of_the_pipe() -> None:
    process = WorkerProcess(exit_with, 3)
    with pytest.raises(EOFError):
        process.pipe.recv()
    assert process.exit_code() == 3
    assert process.describe_end() == "exit status 3"
    process.kill()


def test_a_signal_is_named() -> None:
    process = WorkerProcess(double)
    assert process.pipe.recv() == "ready"
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    assert process.describe_end() == signal.strsignal(signal.SIGKILL)
    process.kill()


def test_a_process_that_does_not_end_is_killed_and_an_interrupt_is_left_to_the_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ridgerank.worker_process._END_SECONDS", 0.01)
    process = WorkerProcess(ignore_the_end)
    pid = process.pid
    assert pid is not None
    assert process.pipe.recv() is signal.SIG_IGN
    assert process.describe_end() == "no answer"
    process.stop()
    assert not running(pid)


def test_cores_are_those_this_process_may_use() -> None:
    assert usable_cores() == len(os.sched_getaffinity(0))
