"""Processes of their own that run the model for a server.

Threads of one process wait for each other's Python between any two operations, so that two of them gain far
less than two processes. The price is one more model in memory for each.
"""

import logging
import multiprocessing
import signal
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from ridgerank.errors import RidgeRankError
from ridgerank.ranking.candidates import CandidateList
from ridgerank.ranking.reranker_options import RerankerOptions
from ridgerank.records import Ranking
from ridgerank.serving.serve_settings import ServingError
from ridgerank.store.cache import CacheCounts

log = logging.getLogger(__name__)


class WorkerDied(RuntimeError):  # noqa: N818 (reads as the fact it states)
    """The process that ran the model ended twice over the same work."""


_STOP_SECONDS = 5.0
_NONE_YET = CacheCounts(0, 0, 0, 0)


@dataclass(frozen=True, slots=True, eq=False)
class _Reply:
    """What came of a call, and how the cache stands after it."""

    counts: CacheCounts
    result: Any = None
    error: RidgeRankError | None = None
    trace: str | None = None
    """Of an error nobody foresaw."""


class ModelProcess:
    """A reranker in another process, for one thread at a time; a process that dies is replaced."""

    def __init__(self, opening: RerankerOptions, store: str, *, threads: int) -> None:
        """Start the process and return at once; the first call waits until it is ready."""
        self._arguments = (opening, store, threads)
        self._counts = _NONE_YET
        self._ready = False
        self._start()

    @property
    def pid(self) -> int | None:
        """The process."""
        return self._process.pid

    def retrieve(self, queries: Sequence[str], *, k: int) -> list[CandidateList]:
        """What the reranker there finds."""
        found: list[CandidateList] = self._call("retrieve", list(queries), k=k)
        return found

    def rank_lists(self, prepared: Sequence[CandidateList]) -> list[Ranking]:
        """Rank each list there."""
        if not prepared:
            return []
        ranked: list[Ranking] = self._call("rank_lists", list(prepared))
        return ranked

    def cache_counts(self) -> CacheCounts:
        """How its cache of pages stood at the last answer."""
        return self._counts

    def wait(self) -> None:
        """Return when it is ready; an error it met while it opened the store is raised here."""
        try:
            self._wait()
        except EOFError as error:
            self._process.join(_STOP_SECONDS)
            raise ServingError(
                f"a process that runs the model ended while it opened the store (exit code "
                f"{self._process.exitcode}; -9 is a kill, often for want of memory); try fewer --workers, or "
                "--threads, which share one model"
            ) from error

    def close(self) -> None:
        """End the process, by force where it does not end by itself."""
        self._line.close()
        self._process.join(_STOP_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _wait(self) -> None:
        if not self._ready:
            self._receive()
            self._ready = True

    def _start(self) -> None:
        # Spawned, not forked: the threads of this process and of its libraries do not survive a fork.
        context = multiprocessing.get_context("spawn")
        self._line, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, *self._arguments), daemon=True)
        self._process.start()
        theirs.close()
        self._ready = False

    def _call(self, method: str, *arguments: object, **options: object) -> Any:  # noqa: ANN401
        for again in (True, False):
            try:
                self._wait()
                self._line.send((method, arguments, options))
                return self._receive()
            except (EOFError, OSError) as error:
                self.close()
                self._start()
                if not again:
                    raise WorkerDied("the process that runs the model ended twice over this work") from error
                log.warning("the process that ran the model died; another takes over")
        raise AssertionError("either returned or raised")

    def _receive(self) -> Any:  # noqa: ANN401
        reply: _Reply = self._line.recv()
        self._counts = reply.counts
        if reply.error is not None:
            raise reply.error
        if reply.trace is not None:
            raise RuntimeError(f"in the process that runs the model:\n{reply.trace}")
        return reply.result


def _work(line: Connection, opening: RerankerOptions, store: str, threads: int) -> None:
    """Open the store, say so, then do what is asked until the line closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt reaches all processes; the server decides
    torch.set_num_threads(threads)
    try:
        reranker = opening.open(store)
        with suppress(RidgeRankError):  # told where it is needed
            _ = reranker.retriever
    except RidgeRankError as error:
        line.send(_Reply(_NONE_YET, error=error))
        return
    line.send(_Reply(_NONE_YET))
    with reranker:
        while True:
            try:
                method, arguments, options = line.recv()
            except (EOFError, OSError):  # the server has gone
                return
            line.send(_answer(reranker, method, arguments, options))


def _answer(reranker: Any, method: str, arguments: Any, options: Any) -> _Reply:  # noqa: ANN401
    result = error = trace = None
    try:
        result = getattr(reranker, method)(*arguments, **options)
    except RidgeRankError as refused:
        error = refused
    except Exception:
        trace = traceback.format_exc()
    return _Reply(reranker.cache_counts(), result, error, trace)
