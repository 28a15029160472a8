"""Work in processes of its own, within limits of time and memory: for parsers of what strangers send.

A parser that crashes, takes too long or too much memory costs its process, and with it one call
(`IsolatedProcess`) or one task of many (`map_in_order`). Processes are spawned, not forked: a fork would copy
locks that threads of this process hold.
"""

import os
import resource
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, suppress
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from threading import Event, Lock
from typing import Any, ParamSpec, TypeVar, cast

from ridgerank.errors import DocumentError

_END_SECONDS = 5.0  # for a process to end by itself once its pipe is closed


class WorkerDied(RuntimeError):  # noqa: N818 (reads as the fact it states)
    """A process ended, or was ended, while it worked."""


class NotStarted(WorkerDied):
    """A process ended before it could work."""


def usable_cores() -> int:
    """How many cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS has no such call


TASK_TIMEOUT_S = 600.0
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
    """Yield each task's result in order, `on_lost`'s if its process died; 0 processes: in this one."""
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
    return cast(Result, _opened[0](task))


MEMORY_BYTES = 6 << 30
"""Address space of the process: libraries and their threads reserve some of it without using it."""
Arguments = ParamSpec("Arguments")


class TookTooLong(Exception):  # noqa: N818 (reads as the fact it states)
    """A call that did not end within its time; its process was killed."""


class IsolatedProcess:
    """Calls functions in another process, one at a time; safe for any number of threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None
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
            pipe = self._pipe or self._start()
            try:
                pipe.send((function, arguments, options))
                if not pipe.poll(seconds):
                    raise TookTooLong(f"not done within {seconds:g} s")
                error: Exception | None
                result, error = pipe.recv()
            except (EOFError, OSError) as gone:
                raise WorkerDied(self._end()) from gone
            except BaseException:
                self._end(kill=True)
                raise
        if error is not None:
            raise error
        return cast(Result, result)

    def close(self) -> None:
        """End the process at once, whatever it does; a call that waits for it fails."""
        self._closed = True
        if (process := self._process) is not None:
            with suppress(ValueError):  # it is closed already
                process.kill()
        with self._lock:
            self._end(kill=True)

    def _start(self) -> Connection:
        context = get_context("spawn")
        pipe, child_pipe = context.Pipe()
        process = context.Process(target=_answer_calls, args=(child_pipe,), daemon=True)
        resource_tracker.ensure_running()  # it would let interruptions through again
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:  # Ctrl-C reaches the whole group, and never this process: the parent ends it
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        child_pipe.close()  # so that the end of the process is the end of the pipe
        self._process, self._pipe = process, pipe
        if self._closed:  # while it was being started: `close` found no process to kill
            self._end(kill=True)
            raise WorkerDied("the process that was called is closed")
        try:
            if not pipe.poll(STARTUP_TIMEOUT_S):
                raise EOFError
            pipe.recv()
        except (EOFError, OSError) as error:
            raise NotStarted(self._end()) from error
        return pipe

    def _end(self, *, kill: bool = False) -> str:
        """End the process and say how it ended: an exit status or the name of a signal."""
        process, pipe = self._process, self._pipe
        self._process = self._pipe = None
        if process is None or pipe is None:
            return ""
        pipe.close()
        if kill:
            process.kill()
        process.join(_END_SECONDS)
        code = process.exitcode
        process.kill()
        process.join()
        with suppress(ValueError):  # another thread, starting a process, waited for this one first
            process.close()
        if code is None:
            return "no answer"
        return f"exit status {code}" if code >= 0 else signal.strsignal(-code) or f"signal {-code}"


def _answer_calls(pipe: Connection) -> None:
    with suppress(ValueError, OSError):  # a stricter limit is in force already
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the other side is gone
        pipe.send(None)
        while True:
            pipe.send(_answer(*pipe.recv()))


def _answer(
    function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]
) -> tuple[Any, Exception | None]:
    """What a call returned, and what it raised."""
    try:
        return function(*arguments, **options), None
    except Exception as error:
        return None, error
