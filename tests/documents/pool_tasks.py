"""Tasks for the tests of the worker pool, in a separate module that other processes import quickly."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def doubling() -> Iterator[Callable[[int], int]]:
    yield lambda task: 2 * task


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
def sleeping_on_one() -> Iterator[Callable[[int], int]]:
    def work(task: int) -> int:
        time.sleep(60 if task == 1 else 0)
        return 2 * task

    yield work


@contextmanager
def slow_at_first() -> Iterator[Callable[[int], int]]:
    def work(task: int) -> int:
        time.sleep(0.2 if task == 0 else 0)
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
