"""Whether a server can answer now: its workers run, and its store can be read."""

import logging
import time
from collections.abc import Callable, Sequence
from threading import Lock

from ridgerank.errors import RidgeRankError
from ridgerank.serving import http_errors
from ridgerank.serving.engine import Engine
from ridgerank.serving.model_process import ModelProcess
from ridgerank.store.page_store import PageStore

log = logging.getLogger(__name__)

PROBE_SECONDS = 5.0
"""The store is read at most this often, unless a request has failed meanwhile."""


class Readiness:
    """Answers `/readyz`; safe for any number of threads."""

    def __init__(
        self,
        engine: Engine,
        processes: Sequence[ModelProcess],
        store: PageStore,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._processes = processes
        self._store = store
        self._clock = clock
        self._lock = Lock()
        self._probed_at: float | None = None
        self._readable = False
        self._warned = False

    def require(self) -> None:
        """Raise where the server cannot answer. It may read the store: call it outside the event loop."""
        if self._engine.closing:
            raise http_errors.shutting_down()
        if self._processes and not any(process.ready for process in self._processes):
            raise http_errors.not_ready("no process that runs the model is ready; one is being started")
        if not self._store_readable():
            raise http_errors.not_ready("the page store cannot be read; the server's log says why")

    def record_fault(self) -> None:
        """Note that a request failed by the server's own fault: the next question reads the store again."""
        self._probed_at = None

    def _store_readable(self) -> bool:
        with self._lock:
            now = self._clock()
            if self._probed_at is None or now - self._probed_at > PROBE_SECONDS:
                self._probed_at = now
                try:
                    self._store.probe()
                    self._readable = True
                    self._warn_of_changes()
                except (RidgeRankError, OSError) as error:
                    log.error("the page store cannot be read: %s", error)
                    self._readable = False
            return self._readable

    def _warn_of_changes(self) -> None:
        if not self._warned and not self._store.is_current():
            self._warned = True
            log.warning(
                "the page store has changed since this server opened it: it still finds pages that were "
                "removed, and none that were added; restart it to serve the store as it is now"
            )
