"""A reranker in a process of its own, for a server.

Threads of one process take turns at Python between any two operations, so that two threads gain far less
than two processes. The price is one more model in memory per process. A process that ends, or that shows no
sign of life (`WorkerProcess.beats`), is replaced.
"""

import logging
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from threading import Event, Lock, Thread
from typing import Any

import torch

from ridgerank.byte_lru import CacheCounts
from ridgerank.errors import RidgeRankError, ServingError
from ridgerank.records import Ranking
from ridgerank.reranker.candidates import CandidateList
from ridgerank.reranker.options import RerankerOptions
from ridgerank.reranker.reranker import Reranker
from ridgerank.store.page_filter import PageFilter
from ridgerank.worker_process import WorkerDied, WorkerProcess

log = logging.getLogger(__name__)

WATCH_SECONDS = 1.0
"""How often a process is looked at."""
STALL_SECONDS = 10.0
"""A process without a sign of life for this long is replaced."""
START_SECONDS = 300.0
"""How long a process may take until its first sign of life: it imports its packages before."""
CANCEL_SECONDS = 5.0
"""How long a process may take to stop work that nobody waits for, before it is replaced."""
_POLL_SECONDS = 0.1
_MAX_PAUSE_SECONDS = 60.0
"""The longest pause before another try, where processes end again and again while they open the store."""
_EMPTY_CACHE = CacheCounts(0, 0, 0, 0)


class WorkStopped(Exception):  # noqa: N818 (reads as the fact it states)
    """The other side wants no result any more."""


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """A method of the reranker and its arguments."""

    method: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Stop:
    """Sent while a call runs: its result is not wanted any more."""


@dataclass(frozen=True, slots=True, eq=False)
class _Reply:
    """The result of a call, or its error, and the counts of the cache after it."""

    counts: CacheCounts
    result: Any = None
    error: RidgeRankError | WorkStopped | None = None
    trace: str | None = None
    """The traceback of an error that is not the library's."""


class ModelProcess:
    """A reranker in another process, for one calling thread; a process that dies or stalls is replaced."""

    def __init__(self, options: RerankerOptions, store: str, *, threads: int) -> None:
        """Start the process and return at once; the first call waits until it is ready."""
        self._arguments = (options, store, threads)
        self._counts = _EMPTY_CACHE
        self._calling = Lock()
        """Held while a call runs, and while the process is replaced."""
        self._closed = Event()
        self._failures = 0
        self._ready = False
        self._beats, self._seen_at = 0, 0.0
        self._start()
        Thread(target=self._watch, name="ridgerank-watch", daemon=True).start()

    @property
    def pid(self) -> int | None:
        """The process id."""
        return self._process.pid

    @property
    def ready(self) -> bool:
        """Whether the process has opened the store, runs, and shows it."""
        return self._ready and not self._closed.is_set() and not self._stalled()

    def retrieve(
        self, queries: Sequence[str], *, k: int, within: PageFilter | None = None
    ) -> list[CandidateList]:
        """`Reranker.retrieve` in the process."""
        options = {"k": k, "within": within}
        candidates: list[CandidateList] = self._call(_Call(Reranker.retrieve, (list(queries),), options))
        return candidates

    def rank_lists(
        self, lists: Sequence[CandidateList], *, before_pass: Callable[[], None] = lambda: None
    ) -> list[Ranking]:
        """`Reranker.rank_lists` in the process; `before_pass` is called here, again and again, meanwhile."""
        if not lists:
            return []
        rankings: list[Ranking] = self._call(_Call(Reranker.rank_lists, (list(lists),), {}), before_pass)
        return rankings

    def cache_counts(self) -> CacheCounts:
        """The counts of the process's page cache at its last reply."""
        return self._counts

    def wait(self) -> None:
        """Return when the process is ready; an error it met while it opened the store is raised here."""
        with self._calling:
            try:
                self._wait()
            except EOFError as error:
                raise ServingError(
                    f"a process that runs the model ended while it opened the store (exit code "
                    f"{self._process.exit_code()}; -9 is a kill, often for want of memory); try fewer "
                    "--workers, or --threads, which share one model"
                ) from error

    def close(self) -> None:
        """End the process at once: it only reads, so nothing is left half done."""
        self._closed.set()
        self._process.send_kill()  # a call that waits for it then ends
        with self._calling:
            self._process.send_kill()
            self._process.pipe.close()

    def watch(self) -> None:
        """Replace a process that has ended or stalled, and learn whether a new one is ready."""
        if self._stalled():
            log.error("the process that runs the model (%s) shows no sign of life; it is replaced", self.pid)
            self._process.send_kill()
        if not self._calling.acquire(blocking=False):
            return  # the thread that waits for its reply learns of its end by itself
        try:
            if self._closed.is_set():
                return
            if not self._process.is_running():
                self._replace()
            elif not self._ready and self._process.pipe.poll():
                self._wait()
        except (EOFError, OSError, RidgeRankError, RuntimeError) as error:
            self._failures += 1
            log.error("a process that runs the model could not open the store: %s", error)
            self._replace()
        finally:
            self._calling.release()

    def _watch(self) -> None:
        while not self._closed.wait(WATCH_SECONDS):
            self.watch()
            if self._failures:
                self._closed.wait(min(_MAX_PAUSE_SECONDS, 2.0**self._failures))

    def _stalled(self) -> bool:
        """Whether the process has shown no sign of life for too long."""
        beats, now = self._process.beats, time.monotonic()
        if beats != self._beats:
            self._beats, self._seen_at = beats, now
        return now - self._seen_at > (STALL_SECONDS if beats else START_SECONDS)

    def _wait(self) -> None:
        if not self._ready:
            self._receive()
            self._ready, self._failures = True, 0

    def _start(self) -> None:
        self._process = WorkerProcess(_serve_calls, *self._arguments)
        self._beats, self._seen_at = 0, time.monotonic()
        self._ready = False

    def _replace(self) -> None:
        self._ready = False
        self._process.kill()
        if not self._closed.is_set():
            self._start()

    def _call(self, call: _Call, check: Callable[[], None] = lambda: None) -> Any:  # noqa: ANN401
        with self._calling:
            try:
                self._wait()
                self._process.pipe.send(call)
                self._await_reply(check)
                return self._receive()
            except (EOFError, OSError) as error:
                self._replace()
                raise WorkerDied("the process that runs the model ended over this work") from error

    def _await_reply(self, check: Callable[[], None]) -> None:
        """Wait for the reply; where `check` raises, stop the work, by force if need be, and raise it."""
        try:
            while not self._process.pipe.poll(_POLL_SECONDS):
                check()
        except (EOFError, OSError):
            raise
        except Exception:
            self._process.pipe.send(_Stop())
            if self._process.pipe.poll(CANCEL_SECONDS):
                with suppress(WorkStopped, RidgeRankError, RuntimeError):
                    self._receive()
            else:
                log.warning("work that nobody waits for does not stop; its process is replaced")
                self._replace()
            raise

    def _receive(self) -> Any:  # noqa: ANN401
        reply: _Reply = self._process.pipe.recv()
        self._counts = reply.counts
        if reply.error is not None:
            raise reply.error
        if reply.trace is not None:
            raise RuntimeError(f"in the process that runs the model:\n{reply.trace}")
        return reply.result


def _serve_calls(pipe: Connection, options: RerankerOptions, store: str, threads: int) -> None:
    """Open the store, reply that it is open, then answer calls until the pipe closes."""
    torch.set_num_threads(threads)
    try:
        reranker = options.open(store)
        with suppress(RidgeRankError):  # raised again by the call that needs the retriever
            _ = reranker.retriever
    except RidgeRankError as error:
        pipe.send(_Reply(_EMPTY_CACHE, error=error))
        return
    with reranker, suppress(EOFError, BrokenPipeError, ConnectionResetError):
        pipe.send(_Reply(_EMPTY_CACHE))
        while True:
            message = pipe.recv()
            if isinstance(message, _Call):  # a stop that came after its call had ended is nothing
                pipe.send(_answer_call(reranker, message, pipe))


def _answer_call(reranker: Reranker, call: _Call, pipe: Connection) -> _Reply:
    def stop_if_told() -> None:
        if pipe.poll():
            pipe.recv()
            raise WorkStopped

    options = call.options
    if call.method is Reranker.rank_lists:
        options = {**options, "before_pass": stop_if_told}
    try:
        result = call.method(reranker, *call.arguments, **options)
    except (RidgeRankError, WorkStopped) as error:
        return _Reply(reranker.cache_counts(), error=error)
    except Exception:
        return _Reply(reranker.cache_counts(), trace=traceback.format_exc())
    return _Reply(reranker.cache_counts(), result)
