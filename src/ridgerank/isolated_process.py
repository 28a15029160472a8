"""Functions called in a process of their own, each within a time limit: for parsers of what strangers send.

A parser that crashes, takes too long or too much memory costs its process, not this one. The process is
started by the first call and after each loss. Knows nothing of what is called.
"""

import resource
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from ridgerank.worker_process import WorkerDied, WorkerProcess, answer_messages

MEMORY_BYTES = 6 << 30
"""Address space of the process: libraries and their threads reserve some of it without using it."""
START_SECONDS = 120.0
"""How long the process may take to start, which counts against no call."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class TookTooLong(Exception):  # noqa: N818 (reads as the fact it states)
    """A call that did not end within its time; its process was killed."""


@dataclass(frozen=True, slots=True, eq=False)
class _Reply:
    """What a call returned or raised."""

    result: Any = None
    error: Exception | None = None


class IsolatedProcess:
    """Calls functions in another process, one at a time; safe for any number of threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: WorkerProcess | None = None
        self._closed = False

    def call(
        self,
        function: Callable[Arguments, Result],
        seconds: float,
        /,
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Result:
        """Call a module's function there; `TookTooLong` after `seconds`, `WorkerDied` where it crashed."""
        with self._lock:
            process = self._running_process()
            try:
                process.pipe.send((function, arguments, options))
                if not process.pipe.poll(seconds):
                    raise TookTooLong(f"not done within {seconds:g} s")
                reply: _Reply = process.pipe.recv()
            except (EOFError, OSError) as error:
                self._discard()
                raise WorkerDied("the process that was called ended") from error
            except BaseException:
                self._discard()
                raise
        if reply.error is not None:
            raise reply.error
        result: Result = reply.result
        return result

    def close(self) -> None:
        """End the process at once, whatever it does; a call that waits for it fails."""
        self._closed = True
        if (process := self._process) is not None:
            process.send_kill()
        with self._lock:
            self._discard()

    def _running_process(self) -> WorkerProcess:
        self._require_open()
        if self._process is None:
            self._process = WorkerProcess(_answer_calls)
            self._require_open()  # closed while it was being started, `close` found none to kill
            try:
                if not self._process.pipe.poll(START_SECONDS):
                    raise WorkerDied("a process to call does not start")
                self._process.pipe.recv()
            except (EOFError, OSError) as error:
                self._discard()
                raise WorkerDied("a process to call does not start") from error
        return self._process

    def _require_open(self) -> None:
        if self._closed:
            self._discard()
            raise WorkerDied("the process that was called is closed")

    def _discard(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None


def _answer_calls(pipe: Connection) -> None:
    with suppress(ValueError, OSError):  # a stricter limit is in force already
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    answer_messages(pipe, _answer)


def _answer(call: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]) -> _Reply:
    function, arguments, options = call
    try:
        return _Reply(function(*arguments, **options))
    except Exception as error:
        return _Reply(error=error)
