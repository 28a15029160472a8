"""Calibration from end to end: queries, candidates, margins, states, readout, weight, artifact.

Only pages whose margins are missing are looked at again; `onepass.py` takes margins while pages are indexed,
so that none are. Margins are kept as they are made: an interrupted calibration goes on.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import numpy as np

from ridgerank.backbones.base import Backbone
from ridgerank.calibration.artifact import DEFAULT_NAME, Calibration, Diagnostics, path_of
from ridgerank.calibration.candidates import find_candidates
from ridgerank.calibration.fit import LEAST_LISTS, Fit, Lessons, fit, usable
from ridgerank.calibration.making import MadeQueries, is_query, queries_from_texts
from ridgerank.calibration.margins import MarginCache
from ridgerank.calibration.picture import draw
from ridgerank.calibration.sight import see_pages
from ridgerank.calibration.teacher import Teacher
from ridgerank.calibration.weighing import Weighing, weigh
from ridgerank.errors import CalibrationError
from ridgerank.fusion.standardize import spread
from ridgerank.lists import Floats, Lists
from ridgerank.readout.artifact import Readout
from ridgerank.records import Candidate, Query
from ridgerank.retrievers.base import Retriever
from ridgerank.runs.run import Qrels
from ridgerank.shallow import ShallowPass
from ridgerank.store.beside import calibrations_folder
from ridgerank.store.origin import require_same_origin
from ridgerank.store.read import PageStore

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
    """Of these, pages that have to be encoded because a margin of theirs is missing."""


class CalibrationWatcher(Protocol):
    """Someone who looks on while a store is calibrated."""

    def calibrating(self, plan: CalibrationPlan) -> None:
        """Queries and candidates are known."""

    def taught(self, pages: int) -> None:
        """The margins of so many pages more are safe."""

    def asked(self, queries: int) -> None:
        """So many queries more have run over their stored candidates."""


@dataclass(frozen=True, slots=True)
class CalibrationRequest:
    """What to calibrate with; the defaults need nothing but the store."""

    queries: tuple[Query, ...] = ()
    """Made from the pages where there are none."""
    queries_from: str = "given"
    qrels: Qrels | None = None
    name: str = DEFAULT_NAME
    retriever_source: str = ""
    """What to load the retriever by; its name, where empty."""
    candidates: int = CANDIDATES
    count: int = QUERIES
    """Queries to make, where none are given."""
    making: Making = "auto"
    documents: tuple[Path, ...] = ()
    """Where to look for pages again; the files they were indexed from, where empty."""


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
    folder = calibrations_folder(store.uri)
    path_of(folder, request.name)
    cache = MarginCache(folder, store.lineage)
    made = _queries(store, backbone, request, cache)
    candidates = find_candidates(retriever, made.queries, request.candidates)
    teacher = Teacher(backbone, cache)
    teacher.want({query.text: found for query, found in candidates.items()})
    pages = {candidate.page_id for found in candidates.values() for candidate in found}
    watcher.calibrating(CalibrationPlan(len(made.queries), made.origin, len(pages), len(teacher.missing)))
    for batch in see_pages(
        store, teacher.missing, max_pixels=backbone.max_pixels, documents=request.documents
    ):
        teacher.read(batch)
        watcher.taught(len(batch))
    lessons = _lessons(ShallowPass(backbone, store), candidates, cache, watcher)
    relevance = None if request.qrels is None else _relevance(store, request.qrels, candidates)
    calibration, fitted = _fitted(store, retriever, request, made, lessons, relevance)
    calibration.save(folder, request.name)
    draw(calibration, fitted, path_of(folder, request.name).with_suffix(".png"))
    return calibration


def different(queries: Sequence[Query]) -> tuple[Query, ...]:
    """Queries of differing text, the first of those that are alike."""
    by_text: dict[str, Query] = {}
    for query in queries:
        by_text.setdefault(query.text, query)
    return tuple(by_text.values())


def _queries(
    store: PageStore, backbone: Backbone, request: CalibrationRequest, cache: MarginCache
) -> MadeQueries:
    """The queries given, or as many as wanted made from the pages; too few are refused."""
    if request.queries:
        made = MadeQueries(different(request.queries), request.queries_from)
    elif request.making == "model":
        made = _asked(store, backbone, request, cache)
    else:
        made = queries_from_texts(store.texts(), request.count)
        if len(made.queries) < LEAST_LISTS and request.making == "auto":
            made = _asked(store, backbone, request, cache)
    if len(made.queries) < LEAST_LISTS:
        raise CalibrationError(
            f"{len(made.queries)} different queries ({made.origin}), wanted at least {LEAST_LISTS}; give "
            "them in a file (--queries): no judgements are needed"
        )
    return made


def _asked(
    store: PageStore, backbone: Backbone, request: CalibrationRequest, cache: MarginCache
) -> MadeQueries:
    """Queries the model writes for pages, in the order of page ids, until there are enough."""
    found: dict[str, Query] = {}
    page_ids = sorted(store.page_ids())
    for start in range(0, len(page_ids), request.count):
        some = page_ids[start : start + request.count]
        unasked = [page_id for page_id in some if cache.written(page_id) is None]
        for batch in see_pages(store, unasked, max_pixels=backbone.max_pixels, documents=request.documents):
            contents = [backbone.content(page) for page in batch]
            prefixes = backbone.encode(contents, exit_layer=backbone.geometry.layers)
            for page, text in zip(batch, backbone.write_queries(prefixes), strict=True):
                cache.add_written(page.page_id, text)
        for page_id in some:
            text = cache.written(page_id) or ""
            if is_query(text) and len(found) < request.count:
                found.setdefault(text.casefold(), Query(f"asked-{page_id[:16]}", text))
        if len(found) == request.count:
            break
    return MadeQueries(tuple(found.values()), f"asked of the model: {len(found)}, a page each")


def _lessons(
    shallow: ShallowPass,
    candidates: Mapping[Query, Sequence[Candidate]],
    cache: MarginCache,
    watcher: CalibrationWatcher,
) -> Lessons:
    """States over the stored, compressed pages, as a request runs them, beside the teacher's margins."""
    states, margins = [], []
    for query, own in candidates.items():
        page_ids = [candidate.page_id for candidate in own]
        found = shallow.run(query.text, page_ids).states
        states.append(found.cpu().numpy().astype(np.float64))
        margins += [cache.margin(query.text, page_id) for page_id in page_ids]
        watcher.asked(1)
    return Lessons(
        lists=Lists.of_lengths(len(own) for own in candidates.values()),
        corpora=tuple(query.corpus for query in candidates),
        retriever=np.array([candidate.score for own in candidates.values() for candidate in own]),
        teacher=np.array(margins, dtype=np.float64),
        states=np.concatenate(states),
    )


def _relevance(store: PageStore, qrels: Qrels, candidates: Mapping[Query, Sequence[Candidate]]) -> Floats:
    """(members,) graded relevance; a page nobody judged, or judged below 0, is not relevant."""
    judged = {
        query: {store.lookup(page): grade for page, grade in qrels.get(query.query_id, {}).items()}
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


def _fitted(
    store: PageStore,
    retriever: Retriever,
    request: CalibrationRequest,
    made: MadeQueries,
    lessons: Lessons,
    relevance: Floats | None,
) -> tuple[Calibration, Fit]:
    told_apart = usable(lessons)
    if not told_apart.any():
        raise CalibrationError(
            f"the full model gives the candidates of each of {len(told_apart)} queries one and the same "
            "score: there is no order to learn; use another backbone or other queries"
        )
    lists, members = lessons.lists.select(told_apart)
    kept = Lessons(
        lists=lists,
        corpora=tuple(np.array(lessons.corpora, dtype=object)[told_apart]),
        retriever=lessons.retriever[members],
        teacher=lessons.teacher[members],
        states=lessons.states[members],
    )
    fitted = fit(kept)
    weighing = weigh(kept, fitted, None if relevance is None else relevance[members])
    readout = Readout(
        vector=fitted.vector,
        penalty=fitted.choice.deployed,
        lists=len(lists),
        pairs=lists.members,
        lineage=store.lineage,
    )
    diagnostics = _diagnostics(request, made, kept, fitted, weighing)
    source = request.retriever_source or retriever.name
    return Calibration(readout, weighing.deployed, retriever.name, source, diagnostics), fitted


def _diagnostics(
    request: CalibrationRequest, made: MadeQueries, lessons: Lessons, fitted: Fit, weighing: Weighing
) -> Diagnostics:
    choice = fitted.choice
    return Diagnostics(
        queries_from=made.origin,
        queries=len(made.queries),
        lists=len(lessons.lists),
        candidates=request.candidates,
        pairs=lessons.lists.members,
        penalties=tuple(choice.penalties.tolist()),
        errors={
            part: tuple((errors / fitted.targets[part]).tolist()) for part, errors in choice.errors.items()
        },
        chosen=dict(choice.chosen),
        penalty_at_edge=choice.at_edge,
        agreement=weighing.agreement,
        agreement_interval=weighing.agreement_interval,
        teacher_relevance=weighing.teacher_relevance,
        relevance_floor=weighing.relevance_floor,
        expected_gain=weighing.expected_gain,
        label_free=weighing.label_free,
        closed_form=weighing.closed_form,
        warnings=weighing.warnings,
        readout_spread=float(spread(fitted.held_out, lessons.lists).mean()),
    )
