"""Tasks for the tests of the worker pool, in a separate module that other processes import quickly."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ridgerank.documents.render import _renderer


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
def ending_on_the_second_page(max_pixels: object) -> Iterator[Callable[[Any], Any]]:
    """Reads pages as usual, but for every second one of a file: that one ends the process."""
    with _renderer(30 * 28 * 28) as read:
        yield lambda ref: os.kill(os.getpid(), signal.SIGSEGV) if ref.number == 2 else read(ref)


def end_the_process(*_: object) -> tuple[()]:
    os.kill(os.getpid(), signal.SIGSEGV)
    return ()


def exit_with_3(pipe: object) -> None:
    os._exit(3)


def sleep_instead(*arguments: object, **options: object) -> None:
    time.sleep(120)
