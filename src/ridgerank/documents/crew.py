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
    results: dict[int, Result] = {}
    workers: list[_Worker[Task, Result]] = []
    drawn = taken = 0
    try:
        while True:
            while not drained and drawn - taken < AHEAD * processes:
                free = next((worker for worker in workers if worker.task is None), None)
                if free is None and len(workers) == processes:
                    break
                numbered = next(remaining, None)
                if numbered is None:
                    drained = True
                    break
                if free is None:
                    free = _Worker(opener)
                    workers.append(free)
                free.give(numbered, patience_s)
                drawn += 1
            if taken in results:
                yield results.pop(taken)
                taken += 1
            elif drained and taken == drawn:
                return
            _collect(workers, results, lost, wait=taken not in results)
    finally:
        for worker in workers:
            worker.end()


def _collect(
    workers: "list[_Worker[Task, Result]]",
    results: dict[int, Result],
    lost: Callable[[Task, str], Result],
    *,
    wait: bool,
) -> None:
    """Move what has arrived into `results`; with `wait`, once something has or a patience has ended."""
    busy = [(worker, worker.task) for worker in workers if worker.task is not None]
    patience = min((worker.deadline for worker, _ in busy), default=0.0) - time.monotonic()
    connection.wait([worker.pipe for worker, _ in busy], max(0.0, patience) if wait else 0.0)
    for worker, (number, task) in busy:
        try:
            for answer in worker.listen():
                results[number] = answer
        except _Lost as loss:
            results[number] = lost(task, str(loss))
            worker.end()
            workers.remove(worker)


class _Lost(Exception):  # noqa: N818 (reads as the fact it states)
    """The answer to a task will never come."""


class _Worker(Generic[Task, Result]):
    """A process, the pipe to it, and the task it has."""

    def __init__(self, opener: Opener[Task, Result]) -> None:
        context = get_context("spawn")  # a fork would copy locks that torch's threads hold
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, opener), daemon=True)
        self.process.start()
        theirs.close()  # so that the end of the process is the end of the pipe
        self.ready = False
        self.task: tuple[int, Task] | None = None
        self.deadline = 0.0

    def give(self, task: tuple[int, Task], patience_s: float) -> None:
        """Hand over one task, with its number."""
        self.task, self.deadline = task, time.monotonic() + patience_s
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
            if self.ready:
                raise _Lost(f"ended the process that read it ({self._last_words()})") from None
            raise DocumentError(
                f"a process to read documents could not start ({self._last_words()}); its message is above. "
                'A script that starts them needs `if __name__ == "__main__":` around what it does'
            ) from None
        if not self.ready:
            self.ready = True
            return []
        self.task = None
        return [answer]

    def end(self) -> None:
        """Stop the process at once: it only reads, so nothing is left half done."""
        self.pipe.close()
        self.process.kill()
        self.process.join()
        self.process.close()

    def _last_words(self) -> str:
        self.process.join(5)
        code = self.process.exitcode or 0
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
