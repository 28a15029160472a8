"""Work spread over processes, results in order, and a process that dies costs one task.

Parsers of hostile files crash, and an executor of the standard library gives everything up when one of its
processes does. Here each process answers one task at a time over its own pipe: when it dies or takes too
long, its task is declared lost, another process takes its place and the rest goes on.

Memory is bounded: tasks are drawn only when a process is free, and never more than a few ahead of what the
consumer has taken. Closing the generator, or any exception, ends the processes. Knows nothing of documents.
"""

import signal
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, suppress
from multiprocessing import connection, get_context
from typing import Generic, TypeVar

from ridgerank.errors import DocumentError

PATIENCE_S = 600.0
"""How long one task may take; whatever needs longer is not coming back."""
STARTUP_S = 120.0
"""How long a process may take to start on top of that: a busy machine is no fault of the file."""
AHEAD = 4
"""Tasks under way or done but not taken, for each process: a slow page does not stop the others."""

Task = TypeVar("Task")
Result = TypeVar("Result")
Opener = Callable[[], AbstractContextManager[Callable[[Task], Result]]]
"""Opens, once in each process, what does the work; pickled, so a function of a module or a partial of one."""


def in_order(
    tasks: Iterable[Task],
    opener: Opener[Task, Result],
    *,
    lost: Callable[[Task, str], Result],
    processes: int,
    patience_s: float = PATIENCE_S,
) -> Generator[Result, None, None]:
    """Yield the result of every task, in the order of the tasks.

    `lost` makes the result of a task whose process died. With fewer than two processes the work is done in
    this one, where nothing protects from a crash.
    """
    if processes < 2:
        with opener() as work:
            for task in tasks:
                yield work(task)
        return
    remaining = enumerate(tasks)
    drained = False
    drawn = taken = 0
    crew = _Crew(opener, lost, processes, patience_s)
    try:
        while True:
            while not drained and crew.has_room() and drawn - taken < AHEAD * processes:
                numbered = next(remaining, None)
                if numbered is None:
                    drained = True
                else:
                    crew.give(numbered)
                    drawn += 1
            if taken in crew.results:
                yield crew.results.pop(taken)
                taken += 1
            elif drained and taken == drawn:
                return
            crew.collect(wait=taken not in crew.results)
    finally:
        crew.end()


class _Crew(Generic[Task, Result]):
    """The processes at work, and the results that have come, by the number of their task."""

    def __init__(
        self,
        opener: Opener[Task, Result],
        lost: Callable[[Task, str], Result],
        processes: int,
        patience_s: float,
    ) -> None:
        self.results: dict[int, Result] = {}
        self._opener, self._lost = opener, lost
        self._processes, self._patience_s = processes, patience_s
        self._workers: list[_Worker[Task, Result]] = []
        self._ever_ready = False

    def has_room(self) -> bool:
        """Whether a process is free, or may be started."""
        return len(self._workers) < self._processes or any(worker.task is None for worker in self._workers)

    def give(self, task: tuple[int, Task]) -> None:
        """Hand a numbered task to a free process, or to a new one."""
        free = next((worker for worker in self._workers if worker.task is None), None)
        if free is None:
            free = _Worker(self._opener, self._patience_s)
            self._workers.append(free)
        free.give(task)

    def collect(self, *, wait: bool) -> None:
        """Move what has arrived into `results`; with `wait`, once something has or a patience has ended."""
        busy = [(worker, worker.task) for worker in self._workers if worker.task is not None]
        patience = min((worker.deadline for worker, _ in busy), default=0.0) - time.monotonic()
        connection.wait([worker.pipe for worker, _ in busy], max(0.0, patience) if wait else 0.0)
        for worker, (number, task) in busy:
            try:
                for answer in worker.listen():
                    self.results[number] = answer
            except _Lost as loss:
                if not self._ever_ready:
                    raise DocumentError(
                        f"processes to read documents do not start ({worker.last_words()}, message above); "
                        'in a script, put what starts them under `if __name__ == "__main__":`'
                    ) from None
                self.results[number] = self._lost(task, str(loss))
                worker.end()
                self._workers.remove(worker)
            self._ever_ready |= worker.ready

    def end(self) -> None:
        """Stop every process at once: they only read, so nothing is left half done."""
        for worker in self._workers:
            worker.end()


class _Lost(Exception):  # noqa: N818 (reads as the fact it states)
    """The answer to a task will never come."""


class _Worker(Generic[Task, Result]):
    """A process, the pipe to it, and the task it has."""

    def __init__(self, opener: Opener[Task, Result], patience_s: float) -> None:
        context = get_context("spawn")  # a fork would copy locks that torch's threads hold
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, opener), daemon=True)
        self.process.start()
        theirs.close()  # so that the end of the process is the end of the pipe
        self.patience_s = patience_s
        self.ready = False
        self.task: tuple[int, Task] | None = None
        self.deadline = 0.0

    def give(self, task: tuple[int, Task]) -> None:
        """Hand over one task, with its number."""
        self.task = task
        self.deadline = time.monotonic() + self.patience_s + (0 if self.ready else STARTUP_S)
        with suppress(OSError):  # a process that has died meanwhile: `listen` says so
            self.pipe.send(task[1])

    def listen(self) -> list[Result]:
        """Return the answer, or nothing yet; `_Lost` if there will be none."""
        try:
            if not self.pipe.poll():
                if time.monotonic() < self.deadline:
                    return []
                raise _Lost("took too long and was given up")
            answer = self.pipe.recv()
        except (EOFError, OSError):
            raise _Lost(f"ended the process that read it ({self.last_words()})") from None
        if not self.ready:
            self.ready = True
            self.deadline = time.monotonic() + self.patience_s
            return []
        self.task = None
        return [answer]

    def end(self) -> None:
        """Stop the process at once."""
        self.pipe.close()
        self.process.kill()
        self.process.join()
        self.process.close()

    def last_words(self) -> str:
        """How the process ended."""
        self.process.join(5)  # the pipe ends a moment before the process does
        code = self.process.exitcode
        if code is None:
            return "no answer"
        return f"exit status {code}" if code >= 0 else signal.strsignal(-code) or f"signal {-code}"


def _serve(pipe: "connection.Connection", opener: Opener[Task, Result]) -> None:
    """Live as a process: say it is ready, answer tasks, end when the other side is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends this one
    with opener() as work:
        try:
            pipe.send(None)
            while True:
                pipe.send(work(pipe.recv()))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return
