"""Work in processes of its own, within limits of time and memory: for parsers of what strangers send.

A parser that crashes, takes too long or too much memory costs its process, and with it one call
(`IsolatedProcess`) or one task of many (`map_in_order`), not this process. Processes are spawned, not forked:
a fork would copy locks that threads of this process hold. Knows nothing of what is done there.
"""

import os
import resource
import signal
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from threading import Lock
from typing import Any, Generic, ParamSpec, TypeVar

from ridgerank.errors import DocumentError

_END_SECONDS = 5.0
"""How long a process may take to end by itself once its pipe is closed."""


class WorkerDied(RuntimeError):  # noqa: N818 (reads as the fact it states)
    """A process ended, or was ended, while it worked."""


class WorkerProcess:
    """A process that runs `target(pipe, *arguments)`, and this side of the pipe to it.

    When the process ends, reading the pipe raises EOFError. For one thread at a time.
    """

    def __init__(self, target: Callable[..., None], *arguments: object) -> None:
        """Start the process and return at once; target and arguments are pickled."""
        context = get_context("spawn")
        self.pipe, child_pipe = context.Pipe()
        self._process = context.Process(target=_run, args=(target, child_pipe, arguments), daemon=True)
        self._process.start()
        child_pipe.close()  # so that the end of the process is the end of the pipe

    @property
    def pid(self) -> int | None:
        """The process id."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """The exit code of a process whose pipe has ended: negative for a signal, None while it runs."""
        self._process.join(_END_SECONDS)  # the pipe ends a moment before the process does
        return self._process.exitcode

    def describe_end(self) -> str:
        """How the process ended, in words: an exit status or the name of a signal."""
        code = self.exit_code()
        if code is None:
            return "no answer"
        return f"exit status {code}" if code >= 0 else signal.strsignal(-code) or f"signal {-code}"

    def stop(self) -> None:
        """Close the pipe and wait for the process to end; kill it where it does not."""
        self.pipe.close()
        self._process.join(_END_SECONDS)
        self.kill()

    def send_kill(self) -> None:
        """End the process at once and leave the rest to the thread that reads the pipe; for any thread."""
        with suppress(ValueError, ProcessLookupError):  # it is closed, or gone, already
            self._process.kill()

    def kill(self) -> None:
        """End the process at once, whatever it does."""
        self.pipe.close()
        self._process.kill()
        self._process.join()
        self._process.close()


def answer_messages(pipe: Connection, answer: Callable[[Any], Any], *, ready: object = None) -> None:
    """Send `ready`, then `answer(message)` for each message; return when the other side is gone."""
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        pipe.send(ready)
        while True:
            pipe.send(answer(pipe.recv()))


def usable_cores() -> int:
    """How many cores this process may run on."""
    return len(os.sched_getaffinity(0))


def _run(target: Callable[..., None], pipe: Connection, arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends this one
    target(pipe, *arguments)


TASK_TIMEOUT_S = 600.0
"""How long one task may take before it is declared lost."""
STARTUP_TIMEOUT_S = 120.0
"""How long a process may take to start, which counts against no call: a machine may be busy."""
TASKS_AHEAD = 4
"""Tasks per process that run or are finished but not yet yielded: a slow page does not stop the others."""

Task = TypeVar("Task")
Result = TypeVar("Result")
Opener = Callable[[], AbstractContextManager[Callable[[Task], Result]]]
"""Opens the function that does the work, once per process. Pickled: a module's function, or its partial."""


def map_in_order(
    tasks: Iterable[Task],
    opener: Opener[Task, Result],
    *,
    on_lost: Callable[[Task, str], Result],
    processes: int,
    timeout_s: float = TASK_TIMEOUT_S,
) -> Generator[Result, None, None]:
    """Yield the result of every task, in the order of the tasks.

    `on_lost` makes the result of a task whose process died. With fewer than two processes the tasks run in
    the calling process, without protection from a crash.
    """
    if processes < 2:
        with opener() as work:
            for task in tasks:
                yield work(task)
        return
    remaining = enumerate(tasks)
    drained = False
    drawn = yielded = 0
    pool = _WorkerPool(opener, on_lost, processes, timeout_s)
    try:
        while True:
            while not drained and pool.has_room() and drawn - yielded < TASKS_AHEAD * processes:
                numbered = next(remaining, None)
                if numbered is None:
                    drained = True
                else:
                    pool.submit(numbered)
                    drawn += 1
            if yielded in pool.results:
                yield pool.results.pop(yielded)
                yielded += 1
            elif drained and yielded == drawn:
                return
            pool.collect(wait=yielded not in pool.results)
    finally:
        pool.stop()


class _WorkerPool(Generic[Task, Result]):
    """The worker processes, and the results received so far, by task number."""

    def __init__(
        self,
        opener: Opener[Task, Result],
        on_lost: Callable[[Task, str], Result],
        processes: int,
        timeout_s: float,
    ) -> None:
        self.results: dict[int, Result] = {}
        self._opener, self._result_when_lost = opener, on_lost
        self._processes, self._task_timeout_s = processes, timeout_s
        self._workers: list[_Worker[Task, Result]] = []
        self._ever_ready = False

    def has_room(self) -> bool:
        """Whether a process is free, or may be started."""
        return len(self._workers) < self._processes or any(worker.task is None for worker in self._workers)

    def submit(self, task: tuple[int, Task]) -> None:
        """Pass a numbered task to a free process, or start one."""
        free = next((worker for worker in self._workers if worker.task is None), None)
        if free is None:
            free = _Worker(self._opener, self._task_timeout_s)
            self._workers.append(free)
        free.submit(task)

    def collect(self, *, wait: bool) -> None:
        """Move received answers into `results`; with `wait`, block until an answer or a time limit comes."""
        busy = [(worker, worker.task) for worker in self._workers if worker.task is not None]
        wait_s = min((worker.deadline for worker, _ in busy), default=0.0) - time.monotonic()
        connection.wait([worker.pipe for worker, _ in busy], max(0.0, wait_s) if wait else 0.0)
        for worker, (number, task) in busy:
            try:
                for answer in worker.receive():
                    self.results[number] = answer
            except _TaskLost as loss:
                if not self._ever_ready:
                    reason = worker.process.describe_end()
                    raise DocumentError(
                        f"processes to read documents do not start ({reason}, message above); "
                        'in a script, put what starts them under `if __name__ == "__main__":`'
                    ) from None
                self.results[number] = self._result_when_lost(task, str(loss))
                worker.process.kill()
                self._workers.remove(worker)
            self._ever_ready |= worker.ready

    def stop(self) -> None:
        """Kill every process: they only read, so nothing is left half done."""
        for worker in self._workers:
            worker.process.kill()


class _TaskLost(Exception):  # noqa: N818 (reads as the fact it states)
    """The answer to a task will never come."""


class _Worker(Generic[Task, Result]):
    """A process, the pipe to it, and its current task."""

    def __init__(self, opener: Opener[Task, Result], timeout_s: float) -> None:
        self.process = WorkerProcess(_run_worker, opener)
        self.pipe = self.process.pipe
        self.timeout_s = timeout_s
        self.ready = False
        self.task: tuple[int, Task] | None = None
        self.deadline = 0.0

    def submit(self, task: tuple[int, Task]) -> None:
        """Send one numbered task to the process."""
        self.task = task
        self.deadline = time.monotonic() + self.timeout_s + (0 if self.ready else STARTUP_TIMEOUT_S)
        with suppress(OSError):  # a process that has died meanwhile: `receive` says so
            self.pipe.send(task[1])

    def receive(self) -> list[Result]:
        """Return the answer, or nothing yet; `_TaskLost` if there will be none."""
        try:
            if not self.pipe.poll():
                if time.monotonic() < self.deadline:
                    return []
                raise _TaskLost("took too long and was given up")
            answer = self.pipe.recv()
        except (EOFError, OSError):
            raise _TaskLost(f"ended the process that read it ({self.process.describe_end()})") from None
        if not self.ready:
            self.ready = True
            self.deadline = time.monotonic() + self.timeout_s
            return []
        self.task = None
        return [answer]


def _run_worker(pipe: Connection, opener: Opener[Task, Result]) -> None:
    """Main function of a process: say it is ready, answer tasks, return when the parent is gone."""
    with opener() as work:
        answer_messages(pipe, work)


MEMORY_BYTES = 6 << 30
"""Address space of the process: libraries and their threads reserve some of it without using it."""
Arguments = ParamSpec("Arguments")


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
                if not self._process.pipe.poll(STARTUP_TIMEOUT_S):
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
