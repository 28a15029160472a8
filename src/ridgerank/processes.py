"""Work in processes of its own, within limits of time and memory: for parsers of what strangers send.

A parser that crashes, takes too long or too much memory costs its process, and with it one call
(`IsolatedProcess`) or one task of many (`map_in_order`), not this process. Processes are spawned, not forked:
a fork would copy locks that threads of this process hold. Knows nothing of what is done there.
"""

import os
import resource
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Event, Lock
from typing import Any, ParamSpec, TypeVar

from ridgerank.errors import DocumentError

_END_SECONDS = 5.0
"""How long a process may take to end by itself once its pipe is closed."""


class WorkerDied(RuntimeError):  # noqa: N818 (reads as the fact it states)
    """A process ended, or was ended, while it worked."""


class NotStarted(WorkerDied):
    """A process ended before it could work."""


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

    def describe_end(self) -> str:
        """How the process ended, in words: an exit status or the name of a signal."""
        self._process.join(_END_SECONDS)  # the pipe ends a moment before the process does
        code = self._process.exitcode
        if code is None:
            return "no answer"
        return f"exit status {code}" if code >= 0 else signal.strsignal(-code) or f"signal {-code}"

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


def usable_cores() -> int:
    """How many cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS has no such call


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

    `on_lost` makes the result of a task whose process died. With 0 processes the tasks run in the calling
    process, without protection from a crash.
    """
    if processes < 1:
        with opener() as work:
            for task in tasks:
                yield work(task)
        return
    pool = [IsolatedProcess() for _ in range(processes)]
    idle: SimpleQueue[IsolatedProcess] = SimpleQueue()
    have_started = Event()
    for process in pool:
        idle.put(process)

    def run(task: Task) -> Result:
        process = idle.get()
        try:
            result = process.call(_run_task, timeout_s, opener, task)
            have_started.set()
            return result
        except TookTooLong:
            return on_lost(task, "took too long and was given up")
        except WorkerDied as error:
            if isinstance(error, NotStarted) and not have_started.is_set():
                raise DocumentError(
                    f"processes to read documents do not start ({error}, message above); "
                    'in a script, put what starts them under `if __name__ == "__main__":`'
                ) from None
            return on_lost(task, f"ended the process that read it ({error})")
        except Exception as error:  # what no reader expects of a file
            return on_lost(task, f"broke what reads it ({type(error).__name__}: {error})")
        finally:
            idle.put(process)

    with ThreadPoolExecutor(processes, thread_name_prefix="ridgerank-process") as threads:
        pending: deque[Future[Result]] = deque()
        try:
            for task in tasks:
                pending.append(threads.submit(run, task))
                if len(pending) == TASKS_AHEAD * processes:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
            for process in pool:  # they only read, so nothing is left half done
                process.close()


_opened: list[Callable[[Any], Any]] = []
"""In a process of `map_in_order`: the function that does the work, once it is open."""


def _run_task(opener: Opener[Task, Result], task: Task) -> Result:
    if not _opened:
        _opened.append(ExitStack().enter_context(opener()))
    result: Result = _opened[0](task)
    return result


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
                end = process.describe_end()
                self._discard()
                raise WorkerDied(end) from error
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
                    raise EOFError
                self._process.pipe.recv()
            except (EOFError, OSError) as error:
                end = self._process.describe_end()
                self._discard()
                raise NotStarted(end) from error
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
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the other side is gone
        pipe.send(None)
        while True:
            pipe.send(_answer(pipe.recv()))


def _answer(call: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]) -> _Reply:
    function, arguments, options = call
    try:
        return _Reply(function(*arguments, **options))
    except Exception as error:
        return _Reply(error=error)
