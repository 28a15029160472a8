"""Calibration from end to end: queries, candidates, targets, states, readout, weight, artifact.

Only pages whose targets are missing are encoded again; `index_hook.py` computes targets while pages are
indexed, and then none are missing. Targets are stored as they are computed: an interrupted calibration goes
on where it stopped.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.load import parse_dtype
from ridgerank.backbones.model_settings import ModelSettings
from ridgerank.backbones.presets import available_targets
from ridgerank.calibration.artifact import DEFAULT_NAME, Calibration, calibration_path
from ridgerank.calibration.assemble import assemble_calibration
from ridgerank.calibration.candidate_lists import find_candidates
from ridgerank.calibration.executor import Executor, LocalExecutor
from ridgerank.calibration.external_teacher import (
    OWN,
    ask_teacher,
    load_teacher,
    require_teacher_exists,
    restrict_lists,
)
from ridgerank.calibration.hooks import CalibrationHook, CalibrationPlan, SilentCalibrationHook
from ridgerank.calibration.plot import plot_calibration
from ridgerank.calibration.query_choice import QUERIES, QuerySource, choose_queries
from ridgerank.calibration.ridge_fit import RemoteStates
from ridgerank.calibration.selection import CalibrationData, select_readout
from ridgerank.calibration.synthetic_queries import QuerySet
from ridgerank.calibration.target_cache import TargetCache
from ridgerank.calibration.teacher import find_missing_targets
from ridgerank.calibration.transfer import transfer_weight
from ridgerank.errors import CalibrationError
from ridgerank.ragged import Floats, Ragged
from ridgerank.ranking.shallow import ShallowPass
from ridgerank.records import STATES, Candidate, Query, State, Target
from ridgerank.retrievers.base import Retriever
from ridgerank.retrievers.load import load_retriever
from ridgerank.runs.run import Qrels
from ridgerank.store.page_store import PageStore
from ridgerank.store.rerender import require_locations
from ridgerank.store.sidecar import edit_calibrations

if TYPE_CHECKING:
    import torch

CANDIDATES = 20
"""K, as in the paper."""


def calibrate(
    store: str | Path | PageStore,
    *,
    backbone: Backbone | str | None = None,
    retriever: Retriever | str | None = None,
    retriever_source: str = "",
    queries: Sequence[Query] | None = None,
    qrels: Qrels | None = None,
    name: str = DEFAULT_NAME,
    weight_from: str = "",
    candidates: int = CANDIDATES,
    query_count: int = QUERIES,
    query_source: QuerySource = "auto",
    queries_from: str = "given",
    documents: Sequence[str | Path] = (),
    target: Target | None = None,
    state: State | None = None,
    teacher: str = "",
    device: str | None = None,
    dtype: "str | torch.dtype | None" = None,
    executor: Executor | None = None,
    hook: CalibrationHook | None = None,
) -> Calibration:
    """Fit a readout and a weight to a store and a retriever without labels, and save them beside the store.

    Where none is given, the backbone is the one the store was made with, and the retriever the one whose
    vectors it holds, else BM25; both may be given by name. `retriever_source` is what to load a given
    retriever by later, its name where empty. Without `queries`, `query_count` queries are
    generated from the pages. `queries_from` tells the report where given queries come from.

    With `qrels` the weight is w* of eq. 4; `weight_from` takes it from another store that was calibrated with
    judgements, `STORE` or `STORE#NAME`, together with its target, state and probabilities of relevance.
    `candidates` is K. `documents` are files and folders to render pages from again; by default, those they
    were indexed from. `target` and `state` are selected by measure where they are not given. `teacher` is
    whose scores to learn in place of the model's own: a TREC run of scores or qrels, another backbone or a
    cross encoder, by file, name or folder. An `executor` runs the model elsewhere than in this process; no
    backbone is loaded then.
    """
    hook = hook or SilentCalibrationHook()
    require_teacher_exists(teacher)
    with ExitStack() as stack:
        page_store = (
            store if isinstance(store, PageStore) else stack.enter_context(PageStore.open(str(store)))
        )
        folder = stack.enter_context(edit_calibrations(page_store.uri))
        path = calibration_path(folder, name)
        retriever_source = retriever_source or _default_source(retriever, page_store)
        if not isinstance(retriever, Retriever):
            retriever = load_retriever(retriever, page_store, device=device, dtype=parse_dtype(dtype))
        transferred = None
        if weight_from:
            transferred = transfer_weight(weight_from, lineage=page_store.lineage, retriever=retriever.name)
            target, state = transferred.target, transferred.state
        if executor is None:
            executor = make_local_executor(page_store, backbone, device=device, dtype=dtype)
        cache = TargetCache(folder, page_store.lineage)
        files = [Path(document) for document in documents]
        query_set = choose_queries(
            queries,
            executor,
            page_store,
            cache,
            origin=queries_from,
            source=query_source,
            count=query_count,
            documents=files,
        )
        lists = find_candidates(retriever, query_set.queries, candidates)
        external = None
        if teacher:
            external = load_teacher(teacher, page_store, folder, documents=files, device=device, dtype=dtype)
            scores = ask_teacher(external, lists, hook, queries_from=query_set.origin)
            lists = restrict_lists(lists, scores, teacher=external.name)
            targets: Sequence[Target] = ("teacher",)
        else:
            own_targets = available_targets(page_store.lineage.prompt_name)
            targets = own_targets if target is None else (target,)
            complete_targets(executor, page_store, cache, lists, targets, files, query_set, hook)
        relevance = None if qrels is None else _read_relevance(page_store, qrels, lists)
        states = executor.compute_states(
            lists, STATES if state is None else (state,), on_queries_run=hook.queries_run
        )
        data = gather_data(
            lists,
            cache,
            targets,
            states,
            relevance,
            given=None if external is None else scores,
        )
        selection = select_readout(data, transferred=None if transferred is None else transferred.weight)
        calibration = assemble_calibration(
            selection,
            query_set,
            lists,
            candidates=candidates,
            lineage=page_store.lineage,
            retriever=retriever.name,
            retriever_source=retriever_source,
            transferred=None if transferred is None else transferred.relevance,
            teacher=OWN if external is None else external.name,
        )
        calibration.save(folder, name)
        plot_calibration(calibration, selection.selected.fit, path.with_suffix(".png"))
        return calibration


def make_local_executor(
    store: PageStore,
    backbone: Backbone | str | None,
    *,
    device: str | None,
    dtype: "str | torch.dtype | None",
) -> LocalExecutor:
    """The model in this process; a model other than the store's is refused."""
    if not isinstance(backbone, Backbone):
        settings = ModelSettings.from_lineage(store.lineage, name=backbone, device=device, dtype=dtype)
        backbone = settings.load()
    return LocalExecutor(ShallowPass(backbone, store))


def _default_source(retriever: Retriever | str | None, store: PageStore) -> str:
    """What the retriever can be loaded by later: its name, or that of the model whose vectors are stored."""
    if isinstance(retriever, Retriever):
        return retriever.name
    if retriever is not None:
        return retriever
    return "bm25" if store.vectors is None else store.vectors.origin.source


def complete_targets(
    executor: Executor,
    store: PageStore,
    cache: TargetCache,
    lists: Mapping[Query, Sequence[Candidate]],
    targets: Sequence[Target],
    documents: Sequence[Path],
    query_set: QuerySet,
    hook: CalibrationHook,
) -> None:
    """Compute and store the targets that are missing."""
    by_text = {query.text: candidates for query, candidates in lists.items()}
    queries_by_page = find_missing_targets(by_text, cache, targets)
    page_ids = {candidate.page_id for _, candidate in _pairs(lists)}
    hook.planned(
        CalibrationPlan(len(query_set.queries), query_set.origin, len(page_ids), len(queries_by_page))
    )
    pages = require_locations(store, sorted(queries_by_page), documents=documents)
    for page_targets in executor.compute_targets(pages, queries_by_page, targets):
        for target, values in page_targets.values.items():
            cache.add(values, target=target)
        hook.targets_stored(page_targets.pages)


def gather_data(
    lists: Mapping[Query, Sequence[Candidate]],
    cache: TargetCache,
    targets: Sequence[Target],
    states: Mapping[State, Floats | RemoteStates],
    relevance: Floats | None,
    *,
    given: Mapping[tuple[str, str], float] | None = None,
) -> CalibrationData:
    """States and targets of all lists, laid end to end.

    Targets are those of the cache, or `given` by query id and page id where the teacher is another.
    """
    pairs = _pairs(lists)
    return CalibrationData(
        lists=Ragged.of_lengths(len(candidates) for candidates in lists.values()),
        corpora=tuple(query.corpus for query in lists),
        retriever=np.array([candidate.score for _, candidate in pairs]),
        targets={
            target: np.array(
                [
                    cache.target(target, query.text, candidate.page_id)
                    if given is None
                    else given[query.query_id, candidate.page_id]
                    for query, candidate in pairs
                ],
                dtype=np.float64,
            )
            for target in targets
        },
        states=states,
        relevance=relevance,
    )


def _pairs(lists: Mapping[Query, Sequence[Candidate]]) -> list[tuple[Query, Candidate]]:
    return [(query, candidate) for query, candidates in lists.items() for candidate in candidates]


def _read_relevance(store: PageStore, qrels: Qrels, lists: Mapping[Query, Sequence[Candidate]]) -> Floats:
    """(members,) graded relevance; a page without a judgement, or judged below 0, is not relevant."""
    page_ids = store.lookup_many(page for query in lists for page in qrels.get(query.query_id, {}))
    judged = {
        query: {page_ids.get(page): grade for page, grade in qrels.get(query.query_id, {}).items()}
        for query in lists
    }
    if not any(judged.values()):
        raise CalibrationError(
            "the judgements name none of the queries; wanted qrels whose query ids are those of --queries"
        )
    grades = [max(judged[query].get(candidate.page_id, 0), 0) for query, candidate in _pairs(lists)]
    return np.array(grades, dtype=np.float64)
