"""A reranker in a process of its own, for a server.

Threads of one process take turns at Python between any two operations, so that two threads gain far less
than two processes. The price is one more model in memory per process.
"""

import logging
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from ridgerank.errors import RidgeRankError, ServingError
from ridgerank.ranking.candidates import CandidateList
from ridgerank.ranking.reranker import Reranker
from ridgerank.ranking.reranker_options import RerankerOptions
from ridgerank.records import Ranking
from ridgerank.store.cache import CacheCounts
from ridgerank.worker_process import WorkerProcess, answer_messages

log = logging.getLogger(__name__)


class WorkerDied(RuntimeError):  # noqa: N818 (reads as the fact it states)
    """The process that ran the model ended twice over the same work."""


_EMPTY_CACHE = CacheCounts(0, 0, 0, 0)


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """A method of the reranker and its arguments."""

    method: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class _Reply:
    """The result of a call, or its error, and the counts of the cache after it."""

    counts: CacheCounts
    result: Any = None
    error: RidgeRankError | None = None
    trace: str | None = None
    """The traceback of an error that is not the library's."""


class ModelProcess:
    """A reranker in another process, for one thread at a time; a process that dies is replaced."""

    def __init__(self, options: RerankerOptions, store: str, *, threads: int) -> None:
        """Start the process and return at once; the first call waits until it is ready."""
        self._arguments = (options, store, threads)
        self._counts = _EMPTY_CACHE
        self._ready = False
        self._start()

    @property
    def pid(self) -> int | None:
        """The process id."""
        return self._process.pid

    def retrieve(self, queries: Sequence[str], *, k: int) -> list[CandidateList]:
        """`Reranker.retrieve` in the process."""
        candidates: list[CandidateList] = self._call(Reranker.retrieve, list(queries), k=k)
        return candidates

    def rank_lists(self, lists: Sequence[CandidateList]) -> list[Ranking]:
        """`Reranker.rank_lists` in the process."""
        if not lists:
            return []
        rankings: list[Ranking] = self._call(Reranker.rank_lists, list(lists))
        return rankings

    def cache_counts(self) -> CacheCounts:
        """The counts of the process's page cache at its last reply."""
        return self._counts

    def wait(self) -> None:
        """Return when the process is ready; an error it met while it opened the store is raised here."""
        try:
            self._wait()
        except EOFError as error:
            raise ServingError(
                f"a process that runs the model ended while it opened the store (exit code "
                f"{self._process.exit_code()}; -9 is a kill, often for want of memory); try fewer --workers, "
                "or --threads, which share one model"
            ) from error

    def close(self) -> None:
        """End the process, by force where it does not end by itself."""
        self._process.stop()

    def _wait(self) -> None:
        if not self._ready:
            self._receive()
            self._ready = True

    def _start(self) -> None:
        self._process = WorkerProcess(_serve_calls, *self._arguments)
        self._ready = False

    def _call(self, method: Callable[..., Any], *arguments: object, **options: object) -> Any:  # noqa: ANN401
        for last_try in (False, True):
            try:
                self._wait()
                self._process.pipe.send(_Call(method, arguments, options))
                return self._receive()
            except (EOFError, OSError) as error:
                self.close()
                self._start()
                if last_try:
                    raise WorkerDied("the process that runs the model ended twice over this work") from error
                log.warning("the process that ran the model died; another takes over")
        raise AssertionError("either returned or raised")

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
    with reranker:
        answer_messages(pipe, lambda call: _answer_call(reranker, call), ready=_Reply(_EMPTY_CACHE))


def _answer_call(reranker: Reranker, call: _Call) -> _Reply:
    result = error = trace = None
    try:
        result = call.method(reranker, *call.arguments, **call.options)
    except RidgeRankError as raised:
        error = raised
    except Exception:
        trace = traceback.format_exc()
    return _Reply(reranker.cache_counts(), result, error, trace)
