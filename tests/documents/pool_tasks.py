"""Tasks for the tests of the worker pool, in a separate module that other processes import quickly."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def doubling(sleep: Mapping[int, float] | None = None) -> Iterator[Callable[[int], int]]:
    """Doubles its tasks, some of them after so many seconds."""

    def work(task: int) -> int:
        time.sleep((sleep or {}).get(task, 0))
        return 2 * task

    yield work


@contextmanager
def naming_the_process() -> Iterator[Callable[[int], int]]:
    def work(task: int) -> int:
        time.sleep(0.01)
        return os.getpid()

    yield work


@contextmanager
def crashing_on_odd() -> Iterator[Callable[[int], int]]:
    def work(task: int) -> int:
        if task % 2:
            os.kill(os.getpid(), signal.SIGSEGV)
        return 2 * task

    yield work


@contextmanager
def never_opening() -> Iterator[Callable[[int], int]]:
    if os.getpid():  # always: types must not know that nothing is ever yielded
        os._exit(3)
    yield lambda task: task


@contextmanager
def answering_at_length() -> Iterator[Callable[[int], bytes]]:
    yield lambda task: bytes([task]) * 3_000_000
