"""The stores of a server: what each holds now, and how a change on disk is taken up while requests run.

A request takes the `StoreState` of its store once and uses nothing else, so that it sees one state whatever
is written meanwhile. A newer state is made beside it, retriever included, and then takes its place.
"""

import hashlib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock

from ridgerank.calibration.artifact import calibration_path
from ridgerank.errors import LineageMismatch, RidgeRankError, ServingError, StoreError
from ridgerank.reranker.options import CalibratedStore, RerankerOptions, open_calibrated
from ridgerank.reranker.reranker import Reranker
from ridgerank.retrievers.bm25 import BM25
from ridgerank.serving.http_errors import ApiError
from ridgerank.serving.judging import Judging
from ridgerank.store.judgements import Judgements
from ridgerank.store.lance_dataset import local_root
from ridgerank.store.sidecar import open_calibrations

log = logging.getLogger(__name__)

REFRESH_SECONDS = 2.0
"""How often a store is looked at for changes; a version stays readable for an hour after the next one."""
_REMOTE_REFRESH_SECONDS = 30.0


@dataclass(frozen=True, slots=True, eq=False)
class StoreState:
    """One state of a store: its pages, calibration and retriever."""

    name: str
    version: str
    """The version of the pages and a digest of the calibration: equal in all processes."""
    reranker: Reranker
    readout: str
    """The calibration's name."""
    retriever: str | None
    own_words: bool
    """Whether its retriever needs no model, so that it answers whatever the model does."""
    judging: Judging | None
    """None if callers may not judge pages."""


@dataclass(slots=True, eq=False)
class StoreChoice:
    """Which stores a request may use, and which one it uses: its scope has it as `ridgerank`."""

    allowed: frozenset[str] | None
    """None for all."""
    named: str | None
    """The store in its path."""
    used: StoreState | None = None
    """What it is answered from."""


class ServedStore:
    """One named store and its present state; for any number of threads."""

    def __init__(self, name: str, uri: str, options: RerankerOptions, *, judge: bool = False) -> None:
        self.name = name
        self.uri = uri
        self._options = options
        self._judge = judge
        self._state: StoreState | None = None
        self._error = ""
        self._stamp: object = None
        self._changing = Lock()
        self._next_look = 0.0

    @property
    def state(self) -> StoreState:
        """The state to serve a request with; an error if the store could not be opened yet."""
        if self._state is None:
            reason = "the store cannot be opened; the server's log says why"
            raise ApiError(503, "store_unavailable", reason, retry_after=5)
        return self._state

    @property
    def is_open(self) -> bool:
        """Whether there is a state to serve."""
        return self._state is not None

    def start(self, reranker: Reranker) -> None:
        """Serve what was opened."""
        self._stamp = self._calibration_stamp()
        self._state = self._make_state(reranker)

    def refresh(self, model: Reranker, *, seen: StoreState | None = None) -> None:
        """Take up what changed; `model` is any reranker that has the model.

        With the state a reader has `seen` when a file was missing, the store is opened again in any case,
        unless a newer state is there already. What cannot be opened leaves the present state in place.
        """
        with self._changing:
            if seen is None and (time.monotonic() < self._next_look or not self._has_changed()):
                return
            if seen is not None and seen is not self._state:
                return
            start = time.monotonic()
            try:
                stamp = self._calibration_stamp()
                parts = open_calibrated(self.uri, self._options.readout)
                state = self._make_state(self._join(parts, model))
                if self._state is not None and self._state.retriever is not None and state.retriever is None:
                    raise StoreError("it cannot be searched now")  # as while added pages have no vectors yet
                self._state, self._stamp, self._error = state, stamp, ""
                log.info("store %s: version %s", self.name, self._state.version)
            except (RidgeRankError, OSError) as error:
                self.fail(error)
            end = time.monotonic()
            wait = REFRESH_SECONDS if local_root(self.uri) else _REMOTE_REFRESH_SECONDS
            self._next_look = end + max(wait, 4 * (end - start))  # changes take a fifth of the time at most

    def fail(self, error: Exception) -> None:
        """Log why the store cannot be opened, once."""
        if str(error) != self._error:
            self._error = str(error)
            goes_on = "" if self._state is None else "; it is served as it was before"
            log.error("store %s cannot be opened: %s%s", self.name, error, goes_on)

    def _join(self, parts: CalibratedStore, model: Reranker) -> Reranker:
        """A reranker over what was opened. Pages that are as before keep their retriever."""
        if self._state is not None:
            before = self._state.reranker
            same = parts.calibration.retriever_identity == before.calibration.retriever_identity
            if self._state.retriever is not None and same and parts.pages.version == before.store.version:
                return before.over(parts._replace(pages=before.store), retriever=before.retriever)
            model = before
        return model.over(parts, retriever=self._options.retriever)

    def _make_state(self, reranker: Reranker) -> StoreState:
        name = None
        try:
            name = reranker.retriever.name
        except RidgeRankError as error:
            log.warning("no retriever: %s; requests must bring candidates, with scores or without", error)
        return StoreState(
            name=self.name,
            version=f"{reranker.store.version}-{reranker.calibration.digest}",
            reranker=reranker,
            readout=self._options.readout,
            retriever=name,
            own_words=name == BM25.name,
            judging=Judging(reranker) if self._judge else None,
        )

    def _has_changed(self) -> bool:
        if self._state is None:
            return True
        try:
            return not self._state.reranker.store.is_current() or self._calibration_stamp() != self._stamp
        except (RidgeRankError, OSError) as error:
            self.fail(error)
            return False

    def _calibration_stamp(self) -> object:
        """Something that differs once the calibration is another."""
        with open_calibrations(self.uri) as folder:
            path = calibration_path(folder, self._options.readout)
            if local_root(self.uri) is None:
                return hashlib.blake2b(path.read_bytes()).digest()
            status = path.stat()
            return status.st_mtime_ns, status.st_size, status.st_ino


def open_stores(
    uris: Mapping[str, str], options: RerankerOptions, *, judge: bool = False
) -> list[ServedStore]:
    """Open stores by name over one model, that of the first that can be opened.

    A store of another model is refused; one that cannot be opened is tried again while the others are
    served. If none can be opened, the first error is raised.
    """
    stores = [ServedStore(name, uri, options, judge=judge) for name, uri in uris.items()]
    opened: list[tuple[ServedStore, CalibratedStore]] = []
    errors: list[RidgeRankError] = []
    for store in stores:  # before the model is loaded, so that what is wrong is said at once
        try:
            opened.append((store, open_calibrated(store.uri, options.readout)))
        except RidgeRankError as error:
            errors.append(error)
            store.fail(error)
        else:
            if judge:
                Judgements(store.uri).require_writable()
    if not opened:
        raise errors[0]
    model = options.open(opened[0][1])
    for store, parts in opened:
        try:
            store.start(model if store is opened[0][0] else model.over(parts, retriever=options.retriever))
        except LineageMismatch as error:
            raise ServingError(
                f"the stores of a server share one model and its settings, and {store.name} has "
                f"others: {error}; serve it by a command of its own"
            ) from error
        except RidgeRankError as error:
            store.fail(error)
    return stores
