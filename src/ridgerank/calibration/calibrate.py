"""Calibration from end to end: queries, candidates, targets, states, readout, weight, artifact.

Only pages whose targets are missing are read again; `index_hook.py` takes targets while pages are indexed,
and then none are missing. Targets are kept as they are made: an interrupted calibration goes on.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import numpy as np

from ridgerank.backbones.base import Backbone
from ridgerank.calibration.artifact import DEFAULT_NAME, Calibration, Diagnostics, path_of
from ridgerank.calibration.candidate_lists import find_candidates
from ridgerank.calibration.executor import Executor, LocalExecutor
from ridgerank.calibration.plot import draw
from ridgerank.calibration.rerender import find_again
from ridgerank.calibration.ridge_fit import LEAST_LISTS, StatesElsewhere
from ridgerank.calibration.selection import Choice, Observed, choose
from ridgerank.calibration.synthetic_queries import MadeQueries, queries_from_texts
from ridgerank.calibration.target_cache import TargetCache
from ridgerank.calibration.teacher import wanted_pairs
from ridgerank.calibration.transfer import borrow
from ridgerank.errors import CalibrationError
from ridgerank.fusion.standardize import spread
from ridgerank.ragged import Floats, Ragged
from ridgerank.readout.readout import Readout
from ridgerank.records import STATES, TARGETS, Candidate, Query, State, Target
from ridgerank.retrievers.base import Retriever
from ridgerank.runs.run import Qrels
from ridgerank.store.model_lineage import require_same_origin
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import keeping_calibrations

logger = logging.getLogger(__name__)

CANDIDATES = 20
"""K, as in the paper."""
QUERIES = 32
"""Queries made where none are given."""

Making: TypeAlias = Literal["auto", "text", "model"]
"""Where queries come from: the pages' text, the model, or the text if it says enough."""


@dataclass(frozen=True, slots=True)
class CalibrationPlan:
    """What is to be done."""

    queries: int
    queries_from: str
    pages: int
    """Different pages among the candidates."""
    unseen: int
    """Of these, pages that have to be encoded because a target of theirs is missing."""


class CalibrationWatcher(Protocol):
    """Someone who looks on while a store is calibrated."""

    def calibrating(self, plan: CalibrationPlan) -> None:
        """Queries and candidates are known."""

    def taught(self, pages: int) -> None:
        """The targets of so many pages more are safe."""

    def asked(self, queries: int) -> None:
        """So many queries more have run over their stored candidates."""


@dataclass(frozen=True, slots=True)
class CalibrationRequest:
    """What to calibrate with; the defaults need nothing but the store."""

    queries: tuple[Query, ...] = ()
    """Made from the pages where there are none."""
    queries_from: str = "given"
    qrels: Qrels | None = None
    weight_from: str = ""
    """Another store, `STORE` or `STORE#NAME`, whose judgements set the weight where there are none here."""
    name: str = DEFAULT_NAME
    retriever_source: str = ""
    """What to load the retriever by; its name, where empty."""
    candidates: int = CANDIDATES
    count: int = QUERIES
    """Queries to make, where none are given."""
    making: Making = "auto"
    documents: tuple[Path, ...] = ()
    """Where to look for pages again; the files they were indexed from, where empty."""
    target: Target | None = None
    """What to teach the readout; chosen by measure where None (`selection.py`)."""
    state: State | None = None
    """Where to read states; chosen by measure where None."""

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets to look at."""
        return TARGETS if self.target is None else (self.target,)

    @property
    def states(self) -> tuple[State, ...]:
        """The states to look at."""
        return STATES if self.state is None else (self.state,)


def calibrate(
    store: PageStore,
    backbone: Backbone,
    retriever: Retriever,
    request: CalibrationRequest,
    *,
    watcher: CalibrationWatcher,
) -> Calibration:
    """Fit readout and weight to a store and a retriever, and save them beside the store."""
    require_same_origin(store.lineage, backbone, artifact=f"the page store at {store.uri}")
    return calibrate_with(LocalExecutor(store, backbone), store, retriever, request, watcher=watcher)


def calibrate_with(
    hands: Executor,
    store: PageStore,
    retriever: Retriever,
    request: CalibrationRequest,
    *,
    watcher: CalibrationWatcher,
) -> Calibration:
    """`calibrate`, with the model run by `hands`."""
    with keeping_calibrations(store.uri) as folder:
        return _calibrate(hands, store, retriever, request, watcher, folder)


def _calibrate(
    hands: Executor,
    store: PageStore,
    retriever: Retriever,
    request: CalibrationRequest,
    watcher: CalibrationWatcher,
    folder: Path,
) -> Calibration:
    path_of(folder, request.name)
    borrowed = None
    if request.weight_from:
        borrowed = borrow(request.weight_from, lineage=store.lineage, retriever=retriever.name)
        request = replace(request, target=borrowed.target, state=borrowed.state)
    cache = TargetCache(folder, store.lineage)
    made = _queries(hands, store, request, cache)
    candidates = find_candidates(retriever, made.queries, request.candidates)
    wanted = wanted_pairs({query.text: own for query, own in candidates.items()}, cache, request.targets)
    pages = {candidate.page_id for own in candidates.values() for candidate in own}
    watcher.calibrating(CalibrationPlan(len(made.queries), made.origin, len(pages), len(wanted)))
    found = find_again(store, sorted(wanted), documents=request.documents)
    for taught in hands.teach(found, wanted, request.targets):
        for target, values in taught.values.items():
            cache.add(values, target=target)
        watcher.taught(taught.pages)
    relevance = None if request.qrels is None else _relevance(store, request.qrels, candidates)
    observed = _observed(hands, candidates, cache, request, relevance, watcher)
    choice = choose(observed, elsewhere=None if borrowed is None else borrowed.weight)
    calibration = _calibration(store, retriever, request, made, choice)
    calibration.save(folder, request.name)
    draw(calibration, choice.taken.fitted, path_of(folder, request.name).with_suffix(".png"))
    return calibration


def different(queries: Sequence[Query]) -> tuple[Query, ...]:
    """Queries of differing text, the first of those that are alike."""
    by_text: dict[str, Query] = {}
    for query in queries:
        by_text.setdefault(query.text, query)
    return tuple(by_text.values())


def _queries(
    hands: Executor, store: PageStore, request: CalibrationRequest, cache: TargetCache
) -> MadeQueries:
    """The queries given, or as many as wanted made from the pages; too few are refused."""
    if request.queries:
        made = MadeQueries(different(request.queries), request.queries_from)
    elif request.making == "model":
        made = hands.queries(store, request, cache)
    else:
        made = queries_from_texts(store.texts(), request.count)
        if len(made.queries) < LEAST_LISTS and request.making == "auto":
            made = hands.queries(store, request, cache)
    if len(made.queries) < LEAST_LISTS:
        raise CalibrationError(
            f"{len(made.queries)} different queries ({made.origin}), wanted at least {LEAST_LISTS}; give "
            "them in a file (--queries): no judgements are needed"
        )
    return made


def _observed(
    hands: Executor,
    candidates: Mapping[Query, Sequence[Candidate]],
    cache: TargetCache,
    request: CalibrationRequest,
    relevance: Floats | None,
    watcher: CalibrationWatcher,
) -> Observed:
    """States over the stored, compressed pages, as a request runs them, beside the teacher's targets."""
    states: Mapping[State, Floats | StatesElsewhere] = {}
    for done in hands.states(candidates, request.states):
        if isinstance(done, int):
            watcher.asked(done)
        else:
            states = done
    pairs = [(query.text, candidate) for query, own in candidates.items() for candidate in own]
    return Observed(
        lists=Ragged.of_lengths(len(own) for own in candidates.values()),
        corpora=tuple(query.corpus for query in candidates),
        retriever=np.array([candidate.score for _, candidate in pairs]),
        targets={
            target: np.array([cache.target(target, text, page.page_id) for text, page in pairs], dtype=float)
            for target in request.targets
        },
        states=states,
        relevance=relevance,
    )


def _relevance(store: PageStore, qrels: Qrels, candidates: Mapping[Query, Sequence[Candidate]]) -> Floats:
    """(members,) graded relevance; a page nobody judged, or judged below 0, is not relevant."""
    found = store.lookup_many(page for query in candidates for page in qrels.get(query.query_id, {}))
    judged = {
        query: {found.get(page): grade for page, grade in qrels.get(query.query_id, {}).items()}
        for query in candidates
    }
    if not any(judged.values()):
        raise CalibrationError(
            "the judgements name none of the queries; wanted qrels whose query ids are those of --queries"
        )
    return np.array(
        [
            max(judged[query].get(candidate.page_id, 0), 0)
            for query, own in candidates.items()
            for candidate in own
        ],
        dtype=np.float64,
    )


def _calibration(
    store: PageStore, retriever: Retriever, request: CalibrationRequest, made: MadeQueries, choice: Choice
) -> Calibration:
    taken = choice.taken
    lists = taken.lessons.lists
    readout = Readout(
        vector=taken.fitted.vector,
        penalty=taken.fitted.choice.deployed,
        lists=len(lists),
        pairs=lists.members,
        lineage=store.lineage,
    )
    return Calibration(
        readout=readout,
        weight=taken.weighing.deployed,
        retriever=retriever.name,
        retriever_source=request.retriever_source or retriever.name,
        diagnostics=_diagnostics(request, made, choice),
        target=taken.reading.target,
        state=taken.reading.state,
    )


def _diagnostics(request: CalibrationRequest, made: MadeQueries, choice: Choice) -> Diagnostics:
    lessons, fitted, weighing = choice.taken.lessons, choice.taken.fitted, choice.taken.weighing
    penalty = fitted.choice
    return Diagnostics(
        queries_from=made.origin,
        queries=len(made.queries),
        lists=len(lessons.lists),
        candidates=request.candidates,
        pairs=lessons.lists.members,
        penalties=tuple(penalty.penalties.tolist()),
        errors={
            part: tuple((errors / fitted.targets[part]).tolist()) for part, errors in penalty.errors.items()
        },
        chosen=dict(penalty.chosen),
        penalty_at_edge=penalty.at_edge,
        agreement=weighing.agreement,
        agreement_interval=weighing.agreement_interval,
        teacher_relevance=weighing.teacher_relevance,
        relevance_floor=weighing.relevance_floor,
        expected_gain=weighing.expected_gain,
        label_free=weighing.label_free,
        closed_form=weighing.closed_form,
        warnings=weighing.warnings,
        reason=choice.reason,
        readings=choice.readings,
        readout_spread=float(spread(fitted.held_out, lessons.lists).mean()),
    )
