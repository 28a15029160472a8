"""Calibration from end to end: make the lists, fit readouts to them, weigh them, save the best.

Only pages whose targets are missing are encoded again. Targets are stored as they are computed: an
interrupted calibration goes on where it stopped.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.load import parse_dtype
from ridgerank.backbones.model_settings import ModelSettings, available_targets
from ridgerank.calibration.artifact import (
    DEFAULT_NAME,
    Calibration,
    Diagnostics,
    ScoreLists,
    calibration_path,
    plot_calibration,
)
from ridgerank.calibration.fit import CalibrationLists, Selection, fit, predict_target, weigh
from ridgerank.calibration.queries import QUERIES, QuerySource, choose_queries
from ridgerank.calibration.teacher import (
    OWN,
    CandidateLists,
    TargetCache,
    TeacherScores,
    complete_targets,
    keep_scored,
    read_teacher,
)
from ridgerank.calibration.weight import transfer_weight
from ridgerank.errors import CalibrationError
from ridgerank.fusion.standardize import standard_deviations
from ridgerank.lineage import Lineage
from ridgerank.ragged import Floats, Ragged
from ridgerank.readout.ridge import Readout
from ridgerank.records import STATES, Candidate, Query, State, Target
from ridgerank.retrievers.base import Retriever
from ridgerank.retrievers.load import load_retriever
from ridgerank.scoring.shallow import ShallowPass
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import edit_calibrations
from ridgerank.trec import Qrels

if TYPE_CHECKING:
    import torch

CANDIDATES = 20
"""K, as in the paper."""
TARGETS_STEP, STATES_STEP = "full-depth targets", "shallow states"
"""The steps of a calibration that take time."""

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with a step, how much of it is done (0 at first), and how much there is to do."""


def _ignore_progress(step: str, done: int, total: int) -> None:
    """Show nothing."""


def calibrate(
    store: str | Path | PageStore,
    *,
    backbone: Backbone | str | None = None,
    retriever: Retriever | str | None = None,
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
    teacher: str | Path = "",
    device: str | None = None,
    dtype: "str | torch.dtype | None" = None,
    progress: Progress = _ignore_progress,
) -> Calibration:
    """Fit a readout and a weight to a store and a retriever without labels, and save them beside the store.

    Where none is given, the backbone is the one the store was made with, and the retriever the one whose
    vectors it holds, else BM25; both may be given by name. Without `queries`, `query_count` queries are
    generated from the pages. `queries_from` tells the report where given queries come from.

    With `qrels` the weight is w* of eq. 4; `weight_from` takes it from another store that was calibrated with
    judgements, `STORE` or `STORE#NAME`, together with its target and state.
    `candidates` is K. `documents` are files and folders to render pages from again; by default, those they
    were indexed from. `target` and `state` are selected by measure where they are not given. `teacher` is a
    TREC run whose scores to learn in place of the model's own, made by any reranker, or judgements.
    """
    with ExitStack() as stack:
        pages = store if isinstance(store, PageStore) else stack.enter_context(PageStore.open(str(store)))
        folder = stack.enter_context(edit_calibrations(pages.uri))
        calibration_path(folder, name)  # refuses a bad name before any work
        given = read_teacher(Path(teacher), pages) if teacher else None
        retriever_source = _retriever_source(retriever, pages)
        if not isinstance(retriever, Retriever):
            retriever = load_retriever(retriever, pages, device=device, dtype=parse_dtype(dtype))
        transferred = None
        if weight_from:
            transferred, target, state = transfer_weight(
                weight_from, lineage=pages.lineage, retriever=retriever.name
            )
        if not isinstance(backbone, Backbone):
            settings = ModelSettings.from_lineage(pages.lineage, name=backbone, device=device, dtype=dtype)
            backbone = settings.load()
        cache = TargetCache(folder, pages.lineage)
        files = [Path(document) for document in documents]
        chosen, origin = choose_queries(
            queries,
            backbone,
            pages,
            cache,
            origin=queries_from,
            source=query_source,
            count=query_count,
            documents=files,
        )
        lists = make_lists(
            ShallowPass(backbone, pages),
            find_candidates(retriever, chosen, candidates),
            given or cache,
            targets=available_targets(pages.lineage.prompt_name) if target is None else (target,),
            states=STATES if state is None else (state,),
            qrels=qrels,
            documents=files,
            progress=progress,
        )
        selection = weigh(lists, fit(lists), transferred=transferred)
        calibration = _assemble(
            selection,
            lineage=pages.lineage,
            retriever=retriever.name,
            retriever_source=retriever_source,
            teacher=OWN if given is None else given.name,
            queries_from=origin,
            queries=len(chosen),
            candidates=candidates,
        )
        save(calibration, folder, name)
        return calibration


def find_candidates(retriever: Retriever, queries: Sequence[Query], k: int) -> dict[Query, list[Candidate]]:
    """The `k` best pages of each query; refused where all scores of every list are equal."""
    lists = retriever.search_many([query.text for query in queries], k)
    if all(len({candidate.score for candidate in candidates}) < 2 for candidates in lists):
        raise CalibrationError(
            f"{retriever.name} gives the candidates of each of {len(queries)} queries one and the same "
            "score: there is nothing to fuse with; use another retriever or other queries"
        )
    return {query: candidates for query, candidates in zip(queries, lists, strict=True) if candidates}


def make_lists(
    shallow: ShallowPass,
    candidates: CandidateLists,
    teacher: TargetCache | TeacherScores,
    *,
    targets: Sequence[Target],
    states: Sequence[State],
    qrels: Qrels | None = None,
    documents: Sequence[Path] = (),
    progress: Progress = _ignore_progress,
) -> CalibrationLists:
    """Targets and states of all candidates, laid end to end.

    Targets are those of the store's own model, of which missing ones are computed and added to its cache, or
    the scores of a file; candidates that the file does not score are left out.
    """
    if isinstance(teacher, TargetCache):
        complete_targets(
            shallow.backbone,
            shallow.store,
            teacher,
            {query.text: pages for query, pages in candidates.items()},
            targets=targets,
            documents=documents,
            progress=partial(progress, TARGETS_STEP),
        )
    else:
        targets, candidates = ("teacher",), keep_scored(candidates, teacher)
    return CalibrationLists(
        queries=tuple(candidates),
        page_ids=tuple(each.page_id for pages in candidates.values() for each in pages),
        lists=Ragged.of_lengths(len(pages) for pages in candidates.values()),
        retriever=np.array([each.score for pages in candidates.values() for each in pages]),
        targets={
            target: np.array(teacher.column(target, candidates), dtype=np.float64) for target in targets
        },
        states=_compute_states(shallow, candidates, states, progress),
        relevance=None if qrels is None else _read_relevance(shallow.store, qrels, candidates),
    )


def save(calibration: Calibration, folder: Path, name: str) -> None:
    """Write the calibration and its picture beside the store."""
    path = calibration.save(folder, name)
    plot_calibration(calibration, path.with_suffix(".png"))


def _compute_states(
    shallow: ShallowPass, candidates: CandidateLists, states: Sequence[State], progress: Progress
) -> dict[State, Floats]:
    """(members, dim) each, in float64: states over the stored candidates, all of a query from one pass.

    One state alone comes from the same pass, so that a readout does not depend on what it is compared with.
    """
    columns: dict[State, list[Floats]] = {state: [] for state in states}
    progress(STATES_STEP, 0, len(candidates))
    for done, (query, pages) in enumerate(candidates.items(), start=1):
        both = shallow.run_both(query.text, [candidate.page_id for candidate in pages])
        for state, column in columns.items():
            column.append(both[state].cpu().numpy().astype(np.float64))
        progress(STATES_STEP, done, len(candidates))
    return {state: np.concatenate(column) for state, column in columns.items()}


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


def _retriever_source(retriever: Retriever | str | None, store: PageStore) -> str:
    """What the retriever can be loaded by later: its name, or that of the model whose vectors are stored."""
    if isinstance(retriever, Retriever):
        return retriever.name
    if retriever is not None:
        return retriever
    return "bm25" if store.vectors is None else store.vectors.origin.source


def _assemble(
    selection: Selection,
    *,
    lineage: Lineage,
    retriever: str,
    retriever_source: str,
    teacher: str,
    queries_from: str,
    queries: int,
    candidates: int,
) -> Calibration:
    """The record that is saved beside the store; `queries` were asked, `candidates` is K."""
    selected = selection.selected
    fitted, decision, option = selected.fit, selected.decision, selected.option
    data, penalty = fitted.data, fitted.penalty
    diagnostics = Diagnostics(
        teacher=teacher,
        queries_from=queries_from,
        queries=queries,
        lists=len(data.lists),
        candidates=candidates,
        pairs=data.lists.members,
        penalties=tuple(penalty.penalties.tolist()),
        errors={
            fold: tuple((errors / fitted.validation_squares[fold]).tolist())
            for fold, errors in penalty.errors.items()
        },
        chosen=dict(penalty.chosen),
        penalty_at_edge=penalty.at_edge,
        agreement=decision.agreement,
        agreement_interval=decision.agreement_interval,
        teacher_relevance=decision.teacher_relevance,
        relevance_floor=decision.relevance_floor,
        expected_gain=decision.expected_gain,
        label_free=decision.label_free,
        paper_label_free=decision.paper_label_free,
        closed_form=decision.closed_form,
        warnings=decision.warnings,
        reason=selection.reason,
        options=selection.options,
        readout_spread=float(standard_deviations(fitted.held_out_scores, data.lists).mean()),
    )
    return Calibration(
        readout=Readout(
            vector=fitted.vector,
            penalty=penalty.deployed,
            lists=len(data.lists),
            pairs=data.lists.members,
            lineage=lineage,
        ),
        weight=decision.deployed,
        retriever=retriever,
        retriever_source=retriever_source,
        diagnostics=diagnostics,
        target=option.target,
        state=option.state,
        lists=ScoreLists(
            queries=data.queries,
            page_ids=data.page_ids,
            lists=data.lists,
            retriever=data.retriever,
            readout=fitted.held_out_scores,
            targets=fitted.targets,
            relevance=data.relevance,
        ),
        target_readout=predict_target(fitted) if option.target == "margin" else None,
    )
