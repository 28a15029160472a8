"""Tasks spread over processes, with results in order. A process that dies loses one task.

Parsers of hostile files crash, and the executors of the standard library stop when one of their processes
dies. Here each process works on one task at a time and answers over its own pipe. When it dies or takes too
long, its task is declared lost, another process is started, and the remaining tasks go on.

Memory is bounded: tasks are drawn only when a process is free, and never more than a few ahead of the
consumer. Closing the generator, or any exception, stops the processes. Knows nothing of documents.
"""

import time
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, suppress
from multiprocessing import connection
from typing import Generic, TypeVar

from ridgerank.errors import DocumentError
from ridgerank.worker_process import WorkerProcess, answer_messages

TASK_TIMEOUT_S = 600.0
"""How long one task may take before it is declared lost."""
STARTUP_TIMEOUT_S = 120.0
"""Added to the limit of a process's first task: starting takes long on a busy machine."""
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
                worker.stop()
                self._workers.remove(worker)
            self._ever_ready |= worker.ready

    def stop(self) -> None:
        """Kill every process: they only read, so nothing is left half done."""
        for worker in self._workers:
            worker.stop()


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

    def stop(self) -> None:
        """Stop the process at once."""
        self.process.kill()


def _run_worker(pipe: "connection.Connection", opener: Opener[Task, Result]) -> None:
    """Main function of a process: say it is ready, answer tasks, return when the parent is gone."""
    with opener() as work:
        answer_messages(pipe, work)
