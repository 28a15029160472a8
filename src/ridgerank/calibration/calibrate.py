"""Calibration from end to end: make the lists, fit readouts to them, weigh them, save the best.

`calibrate` calls four functions that may be called one by one: `make_lists`, `fit` (`fit.py`), `weigh`
(`weight.py`) and `save`. Only pages whose targets are missing are encoded again. Targets are stored as they
are computed: an interrupted calibration goes on where it stopped.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack

import numpy as np

from ridgerank.atomic import replace_file
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.load import parse_dtype
from ridgerank.backbones.model_settings import PRESETS, ModelSettings, available_targets
from ridgerank.calibration.artifact import (
    DEFAULT_NAME,
    Calibration,
    Diagnostics,
    ReadoutOption,
    ScoreLists,
    calibration_path,
    plot_calibration,
)
from ridgerank.calibration.fit import (
    LEAST_LISTS,
    CalibrationLists,
    Fits,
    QueryLists,
    ReadoutFit,
    fit,
    predict_target,
)
from ridgerank.calibration.queries import QUERIES, cut_questions, reorder_words
from ridgerank.calibration.readout_file import ReadoutFile
from ridgerank.calibration.teacher import (
    OWN,
    CandidateLists,
    TargetCache,
    complete_targets,
    keep_scored,
    read_teacher,
)
from ridgerank.calibration.weight import Scorer, Weighed, mean_interval, weigh
from ridgerank.errors import CalibrationError
from ridgerank.fusion.standardize import standard_deviations
from ridgerank.ragged import Floats, Ragged
from ridgerank.readout.ridge import Readout
from ridgerank.records import STATES, Candidate, Query, State, Target, document_name
from ridgerank.retrievers.base import AmongPages, Retriever
from ridgerank.retrievers.load import load_retriever
from ridgerank.scoring.shallow import ShallowPass
from ridgerank.store.page_filter import PageSelection
from ridgerank.store.page_store import PageStore, ids_filter
from ridgerank.store.sidecar import edit_calibrations
from ridgerank.trec import Qrels

if TYPE_CHECKING:
    import torch

CANDIDATES = 20
"""K, as in the paper."""
READ_PAGES = 100
"""Pages read at full depth, at most: the queries that readouts are fitted to share their candidates."""
TARGETS_STEP, STATES_STEP = "full-depth targets", "shallow states"
"""The steps of a calibration that take time."""

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with a step, how much of it is done (0 at first), and how much there is to do."""


def _ignore_progress(step: str, done: int, total: int) -> None:
    """Show nothing."""


class ListOptions(TypedDict, total=False):
    """What `make_lists` may be told."""

    queries: Sequence[Query] | None
    """What a readout is fitted to; by default questions cut from the pages."""
    qrels: Qrels | None
    """Judgements of these queries."""
    candidates: int
    """K."""
    query_count: int
    """How many questions to cut from pages."""
    read_pages: int
    """How many pages to read at full depth, at most, where no teacher is given."""
    documents: Sequence[str | Path]
    """Files and folders to render pages from again; by default, those they were indexed from."""
    target: Target | None
    state: State | None
    """Chosen by measure if they are not given."""
    teacher: str | Path
    """A TREC run whose scores to learn in place of the model's own, made by any reranker."""
    progress: Progress


@dataclass(frozen=True, slots=True)
class Workbench:
    """A store with its model, its retriever and the folder of its calibrations."""

    shallow: ShallowPass
    retriever: Retriever
    folder: Path

    @property
    def retriever_fields(self) -> dict[str, Any]:
        """What a calibration records of the retriever."""
        each = self.retriever
        names = {"retriever_identity": each.identity, "retriever_source": each.source}
        return {"retriever": each.name, **{field: name or each.name for field, name in names.items()}}

    @property
    def incumbent(self) -> float:
        """The weight of the readout if it and every retriever have an equal say."""
        return 1.0 / (self.retriever.members + 1)


@contextmanager
def open_workbench(
    store: str | Path | PageStore,
    *,
    backbone: Backbone | str | None = None,
    retriever: Retriever | str | None = None,
    device: str | None = None,
    dtype: "str | torch.dtype | None" = None,
) -> Iterator[Workbench]:
    """Open what a calibration needs. The backbone is by default the one the store was made with.

    The retriever is the one whose vectors the store holds, else BM25; both may be given by name.
    """
    pages = store if isinstance(store, PageStore) else PageStore.open(str(store))
    with edit_calibrations(pages.uri) as folder:
        if not isinstance(retriever, Retriever):
            retriever = load_retriever(retriever, pages, device=device, dtype=parse_dtype(dtype))
        if not isinstance(backbone, Backbone):
            settings = ModelSettings.from_lineage(pages.lineage, name=backbone, device=device, dtype=dtype)
            backbone = settings.load()
        yield Workbench(ShallowPass(backbone, pages), retriever, folder)


def calibrate(
    store: str | Path | PageStore,
    *,
    backbone: Backbone | str | None = None,
    retriever: Retriever | str | None = None,
    name: str = DEFAULT_NAME,
    queries_from: str = "given",
    readout: ReadoutFile | None = None,
    export: Path | None = None,
    device: str | None = None,
    dtype: "str | torch.dtype | None" = None,
    **options: Unpack[ListOptions],
) -> Calibration:
    """Fit a readout and a weight to a store and its retriever, and save them beside the store.

    No judgements are needed. Without `queries`, questions are cut from the pages; with `qrels` the weight is
    that of the judgements. `queries_from` tells the report where given queries come from. With a `readout`
    nothing is fitted and no page is read again: only its weight is estimated. `export` is a file for all
    lists (`export_lists`). The other options are those of `make_lists`.
    """
    opened = partial(open_workbench, backbone=backbone, retriever=retriever, device=device, dtype=dtype)
    with opened(store) as workbench:
        calibration_path(workbench.folder, name)  # refuses a bad name before any work
        if readout is not None:
            readout.require(workbench.shallow.backbone, workbench.shallow.store.lineage)
        lists = make_lists(workbench, readout=readout, **options)
        if export is not None:
            export_lists(lists, export)
        fits: Fits = {} if lists.fitted is None else fit(lists.fitted, lists.documents)
        weighed = weigh(
            lists,
            scorers(fits, lists) if readout is None else file_scorer(readout),
            incumbent=workbench.incumbent,
            keep_paper=keeps_paper(workbench.shallow.backbone),
        )
        return save(
            workbench,
            lists,
            fits,
            weighed,
            name=name,
            readout=readout,
            queries_from=queries_from if options.get("queries") or readout else _describe_questions(lists),
        )


def make_lists(
    workbench: Workbench,
    *,
    readout: ReadoutFile | None = None,
    queries: Sequence[Query] | None = None,
    qrels: Qrels | None = None,
    candidates: int = CANDIDATES,
    query_count: int = QUERIES,
    read_pages: int = READ_PAGES,
    documents: Sequence[str | Path] = (),
    target: Target | None = None,
    state: State | None = None,
    teacher: str | Path = "",
    progress: Progress = _ignore_progress,
) -> CalibrationLists:
    """All lists of a calibration: what to fit, and what to weigh it by.

    Targets are those of the store's own model, of which missing ones are computed and kept in its cache, or
    the scores of a `teacher`; candidates that the file does not score are left out. Pages that are not
    encoded yet are left out, too. With a `readout` nothing
    is to be fitted, and no page is read at full depth.
    """
    store, backbone, retriever = workbench.shallow.store, workbench.shallow.backbone, workbench.retriever
    page_ids, texts = store.page_ids(), store.texts()
    if pending := store.pending():
        page_ids = [page_id for page_id in page_ids if page_id not in pending]
        texts = {page_id: texts[page_id] for page_id in page_ids}
        retriever = AmongPages(retriever, PageSelection(frozenset(page_ids), ids_filter(page_ids)))
    names = zip(page_ids, store.references(page_ids), strict=True)
    document_of = {page: document_name(name) for page, name in names}
    known_targets = available_targets(store.lineage.prompt_name)
    first = {query.text: query for query in reversed(queries or ())}
    asked = tuple(first[text] for text in dict.fromkeys(query.text for query in queries or ()))
    made = tuple(query for query in cut_questions(texts, query_count) if retriever.answers(query.text))
    targets = known_targets if target is None else (target,)
    files, step = [Path(path) for path in documents], partial(progress, TARGETS_STEP)
    shared: CandidateLists = {}
    columns: dict[Target, Floats] = {}
    scores = read_teacher(Path(teacher), store) if teacher else None
    if readout is None:
        cache = TargetCache(workbench.folder, store.lineage)
        complete = partial(complete_targets, backbone, store, cache, documents=files, progress=step)
        fitted = asked or made
        if len(fitted) < LEAST_LISTS:
            raise CalibrationError(
                f"{len(fitted)} different queries, expected at least {LEAST_LISTS}; give them in a file: no "
                f"judgements are needed{'' if asked else '. Or read pages without text with index --ocr'}"
            )
        free = find_candidates(retriever, fitted, candidates)
        if scores is None:
            shared = share_pages(retriever, free, candidates, pages=read_pages)
            complete({query.text: pages for query, pages in shared.items()}, targets=targets)
            if None in cache.column(targets[0], shared):  # a page that cannot be read any more
                shared = keep_scored(shared, cache, targets[0])
            columns = {each: np.array(cache.column(each, shared), dtype=np.float64) for each in targets}
        else:
            shared = keep_scored(free, scores)
            columns = {"teacher": np.array(scores.column("teacher", shared), dtype=np.float64)}
    found = find_candidates(retriever, [*asked, *made], candidates)
    of_made = {query: found[query] for query in made if query in found}
    of_asked = {query: found[query] for query in asked if query in found}
    states = readout.calibration.state if readout is not None else state
    run = StatePasses(
        workbench.shallow,
        STATES if states is None else (states,),
        progress,
        total=len(shared) + 2 * len(of_made) + len(of_asked),
    )
    return CalibrationLists(
        fitted=run.lists(shared, None, targets=columns),
        made=run.lists(of_made, _find_sources(of_made)),
        reordered=run.lists(of_made, _find_sources(of_made), rewrite=reorder_words),
        asked=run.lists(of_asked, None if qrels is None else _read_relevance(store, qrels, of_asked)),
        documents=document_of,
        teacher=OWN if scores is None else scores.name,
    )


class StatePasses:
    """Runs lists over the stored pages, and counts them."""

    def __init__(self, shallow: ShallowPass, states: Sequence[State], progress: Progress, total: int) -> None:
        self._shallow, self._states, self._total, self._done = shallow, states, total, 0
        self._progress = partial(progress, STATES_STEP)
        self._progress(0, total)

    def lists(
        self,
        candidates: CandidateLists,
        relevance: Floats | None,
        *,
        targets: Mapping[Target, Floats] | None = None,
        rewrite: Callable[[str], str] = str,
    ) -> QueryLists | None:
        """The lists with states of the queries' texts, rewritten; None if there are none.

        Both states of a query come from one pass, so that a readout does not depend on what it is compared
        with.
        """
        if not candidates:
            return None
        columns: dict[State, list[Floats]] = {state: [] for state in self._states}
        for query, pages in candidates.items():
            both = self._shallow.run_both(rewrite(query.text), [page.page_id for page in pages])
            for state, column in columns.items():
                column.append(both[state].cpu().numpy().astype(np.float64))
            self._done += 1
            self._progress(self._done, self._total)
        return QueryLists(
            queries=tuple(candidates),
            page_ids=tuple(each.page_id for pages in candidates.values() for each in pages),
            lists=Ragged.of_lengths(len(pages) for pages in candidates.values()),
            retriever=np.array([each.score for pages in candidates.values() for each in pages]),
            states={state: np.concatenate(column) for state, column in columns.items()},
            targets=targets or {},
            relevance=relevance,
        )


def find_candidates(retriever: Retriever, queries: Sequence[Query], k: int) -> dict[Query, list[Candidate]]:
    """The `k` best pages of each query; refused if all scores of every list are equal."""
    lists = retriever.search_many([query.text for query in queries], k) if queries else []
    if lists and all(len({candidate.score for candidate in candidates}) < 2 for candidates in lists):
        raise CalibrationError(
            f"{retriever.name} gives the candidates of each of {len(queries)} queries one and the same "
            "score: there is nothing to fuse with; use another retriever or other queries"
        )
    return {query: candidates for query, candidates in zip(queries, lists, strict=True) if candidates}


def share_pages(
    retriever: Retriever, free: CandidateLists, k: int, *, pages: int = READ_PAGES
) -> dict[Query, list[Candidate]]:
    """Candidates of each query among so many pages at most, in place of those among all pages.

    These are the pages that questions were made from, then those that most queries have among their own.
    """
    counts = Counter(each.page_id for candidates in free.values() for each in candidates)
    sources = dict.fromkeys(query.source for query in free if query.source)
    ordered = [*sources, *sorted(counts, key=lambda page: (-counts[page], page))]
    pool = frozenset(list(dict.fromkeys(ordered))[:pages])
    if counts.keys() <= pool:
        return {query: list(candidates) for query, candidates in free.items()}
    lists = retriever.search_within(
        [query.text for query in free], k, PageSelection(pool, ids_filter(sorted(pool)))
    )
    return {query: found for query, found in zip(free, lists, strict=True) if len(found) > 1}


def scorers(fits: Fits, lists: CalibrationLists) -> dict[tuple[Target, State], Scorer]:
    """What scores lists by each readout that could be fitted."""
    return {
        reading: partial(each.score, documents=lists.documents)
        for reading, each in fits.items()
        if isinstance(each, ReadoutFit)
    }


def file_scorer(readout: ReadoutFile) -> dict[tuple[Target, State], Scorer]:
    """What scores lists by the readout of a file."""
    made = readout.calibration
    return {(made.target, made.state): lambda lists: made.readout.score(lists.states[made.state])}


def keeps_paper(backbone: Backbone) -> bool:
    """Whether a model keeps the paper's reading: those that look at pages, and trained rerankers."""
    return not backbone.reads_text or backbone.prompt.name in PRESETS or backbone.ranking_head is not None


def save(
    workbench: Workbench,
    lists: CalibrationLists,
    fits: Fits,
    weighed: Weighed,
    *,
    name: str = DEFAULT_NAME,
    readout: ReadoutFile | None = None,
    queries_from: str = "",
) -> Calibration:
    """Write the calibration, and its picture if a readout was fitted, beside the store."""
    calibration = _assemble(workbench, lists, fits, weighed, readout, queries_from)
    path = calibration.save(workbench.folder, name)
    if calibration.diagnostics.errors:
        plot_calibration(calibration, path.with_suffix(".png"))
    return calibration


def export_lists(lists: CalibrationLists, path: Path) -> None:
    """Write all lists as safetensors, for those who want to fit something else.

    Of each kind (`fitted`, `made`, `reordered`, `asked`) there are `KIND/list_lengths` (lists,),
    `KIND/retriever` (members,), `KIND/states/STATE` (members, dim) and, if there are any,
    `KIND/targets/TARGET` and `KIND/relevance` (members,). The metadata holds JSON under `KIND`: `queries`
    with id, text, corpus and source, and `pages` with the id of each member.
    """
    from safetensors.numpy import save as serialize

    tensors: dict[str, Any] = {}
    metadata = {"format": "ridgerank-lists-1"}
    for kind, each in lists.kinds().items():
        tensors |= {f"{kind}/list_lengths": each.lists.lengths, f"{kind}/retriever": each.retriever}
        tensors |= {f"{kind}/states/{state}": values for state, values in each.states.items()}
        tensors |= {f"{kind}/targets/{target}": values for target, values in each.targets.items()}
        if each.relevance is not None:
            tensors[f"{kind}/relevance"] = each.relevance
        queries = [[query.query_id, query.text, query.corpus, query.source] for query in each.queries]
        metadata[kind] = json.dumps({"queries": queries, "pages": each.page_ids}, ensure_ascii=False)
    with replace_file(path) as scratch:
        scratch.write_bytes(serialize(tensors, metadata))


def _find_sources(lists: CandidateLists) -> Floats:
    """(members,): 1 for the page that a question was made from."""
    return np.array([float(each.page_id == query.source) for query, pages in lists.items() for each in pages])


def _read_relevance(store: PageStore, qrels: Qrels, lists: CandidateLists) -> Floats:
    """(members,) graded relevance; a page without a judgement, or judged below 0, is not relevant."""
    page_ids = store.lookup_many(page for query in lists for page in qrels.get(query.query_id, {}))
    judged = {
        query: {page_ids.get(page): grade for page, grade in qrels.get(query.query_id, {}).items()}
        for query in lists
    }
    if not any(judged.values()):
        raise CalibrationError(
            "the judgements name none of the queries; expected qrels with the query ids of the queries given"
        )
    grades = [max(judged[query].get(each.page_id, 0), 0) for query, pages in lists.items() for each in pages]
    return np.array(grades, dtype=np.float64)


def _describe_questions(lists: CalibrationLists) -> str:
    fitted = lists.fitted.queries if lists.fitted is not None else ()
    kinds = Counter(query.query_id.partition("-")[0] for query in fitted)
    return f"cut from the pages' text: {', '.join(f'{count} {kind}s' for kind, count in kinds.items())}"


def _assemble(
    workbench: Workbench,
    lists: CalibrationLists,
    fits: Fits,
    weighed: Weighed,
    readout: ReadoutFile | None,
    queries_from: str,
) -> Calibration:
    """The record that is saved; without a fit the readout is the one of the file."""
    lineage, kept = workbench.shallow.store.lineage, None
    if weighed.kept is not None:
        kept = ScoreLists(
            weighed.kept.queries,
            weighed.kept.page_ids,
            weighed.kept.lists,
            weighed.kept.retriever,
            weighed.scores,
            weighed.kept.relevance if lists.judged else None,
        )
    fitted = fits.get(weighed.reading)
    if not isinstance(fitted, ReadoutFit) or lists.fitted is None:
        assert readout is not None  # a reading that was weighed was fitted, or is the file's
        return replace(
            readout.over(lineage, queries_from, workbench.incumbent),
            weight=weighed.weight,
            **workbench.retriever_fields,
            lists=kept,
        )
    data, penalty = fitted.data, fitted.penalty
    agreements = fitted.agreements()
    agreement, interval = mean_interval(agreements)
    diagnostics = Diagnostics(
        queries_from=queries_from,
        queries=len(lists.fitted.queries),
        lists=len(data.lists),
        candidates=int(lists.fitted.lists.lengths.max()),
        pairs=data.lists.members,
        penalties=tuple(penalty.penalties.tolist()),
        errors={
            fold: tuple((errors / fitted.validation_squares[fold]).tolist())
            for fold, errors in penalty.errors.items()
        },
        chosen=dict(penalty.chosen),
        penalty_at_edge=penalty.at_edge,
        agreements=tuple(agreements.tolist()),
        agreement=agreement,
        agreement_interval=interval,
        incumbent=workbench.incumbent,
        reason=weighed.reason,
        options=tuple(_describe_option(reading, each, weighed) for reading, each in fits.items()),
        readout_spread=float(standard_deviations(fitted.held_out_scores, data.lists).mean()),
        teacher=lists.teacher,
    )
    return Calibration(
        readout=Readout(fitted.vector, penalty.deployed, len(data.lists), data.lists.members, lineage),
        weight=weighed.weight,
        **workbench.retriever_fields,
        diagnostics=diagnostics,
        target=fitted.target,
        state=fitted.state,
        target_readout=predict_target(fitted) if fitted.target == "margin" else None,
        lists=kept,
    )


def _describe_option(
    reading: tuple[Target, State], fitted: ReadoutFit | CalibrationError, weighed: Weighed
) -> ReadoutOption:
    relevance = weighed.relevance.get(reading, float("nan"))
    if isinstance(fitted, CalibrationError):
        return ReadoutOption(*reading, float("nan"), relevance, str(fitted))
    return ReadoutOption(*reading, float(fitted.agreements().mean()), relevance, "")
