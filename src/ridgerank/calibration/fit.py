"""The lists of a calibration, and readouts fitted to them by ridge regression (eq. 8-10).

A list is scored by a readout that never saw it: neither its fold's lists nor the pages of its fold's
documents were fitted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, pairwise

import numpy as np
from numpy.typing import NDArray

from ridgerank.errors import CalibrationError
from ridgerank.fusion.correlations import correlation
from ridgerank.ragged import Bools, Floats, Ragged
from ridgerank.readout import (
    CenteredMoments,
    PenaltyChoice,
    TargetReadout,
    choose_penalty,
    choose_penalty_of_few,
    fit_target_readouts,
    merge_moments,
    ridge_path,
)
from ridgerank.records import Query, State, Target

LEAST_LISTS = 16
"""§B.3: sixteen queries reach 98 to 99 % of what 154 do; below, the paper has measured nothing."""
_MANY_LISTS = 32
"""From here on there are eight folds, and one is enough to choose a penalty by."""


@dataclass(frozen=True, slots=True, eq=False)
class QueryLists:
    """Queries with their candidates laid end to end: scores b, states h and targets t of (members, …)."""

    queries: tuple[Query, ...]
    page_ids: tuple[str, ...]
    lists: Ragged
    retriever: Floats
    states: Mapping[State, Floats]
    targets: Mapping[Target, Floats]
    """(members,) each: t; empty if the pages were not read at full depth."""
    relevance: Floats | None
    """(members,): grades that were given, or whether a page is the one its question was made from."""

    def select(self, chosen: Bools) -> "QueryLists":
        """The lists marked in `chosen` (lists,)."""
        lists, members = self.lists.select(chosen)
        return QueryLists(
            queries=tuple(compress(self.queries, chosen)),
            page_ids=tuple(compress(self.page_ids, members)),
            lists=lists,
            retriever=self.retriever[members],
            states={state: values[members] for state, values in self.states.items()},
            targets={target: values[members] for target, values in self.targets.items()},
            relevance=None if self.relevance is None else self.relevance[members],
        )


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationLists:
    """All lists of a calibration; None if there are none of a kind."""

    fitted: QueryLists | None
    """With targets: what readouts are fitted to. Their candidates share pages."""
    made: QueryLists | None
    """Questions cut from pages, over the retriever's own candidates; relevant is the page they came from."""
    reordered: QueryLists | None
    """The same pages under the same questions, words dropped and the rest shuffled."""
    asked: QueryLists | None
    """Queries that were given, over the retriever's own candidates, with relevance if they are judged."""
    documents: Mapping[str, str]
    teacher: str = "the backbone itself"

    @property
    def judged(self) -> bool:
        """Whether relevance judgements were given."""
        return self.asked is not None and self.asked.relevance is not None


@dataclass(frozen=True, slots=True, eq=False)
class ReadoutFit:
    """The readout of one target and state, and its scores on lists it was not fitted on."""

    target: Target
    state: State
    data: QueryLists
    """The lists it was fitted to: those in which the target varies."""
    vector: Floats
    penalty: PenaltyChoice
    validation_squares: Mapping[str, float]
    """Held-out fold → the squared targets of its validation folds, with which an error is compared."""
    held_out_scores: Floats
    """(members,): each list scored by a readout fitted without it."""
    list_folds: tuple[str, ...]
    folds: Mapping[str, str]
    """Query id, or document that questions were made from → fold."""
    fold_vectors: Mapping[str, Floats]
    """Fold → (dim,), fitted without it."""

    def agreements(self) -> Floats:
        """(lists,): correlation of held-out scores with the target."""
        return correlation(self.held_out_scores, self.data.targets[self.target], self.data.lists)

    def score(self, lists: QueryLists, documents: Mapping[str, str]) -> Floats:
        """(members,): every list by a readout that did not see it; `documents` are by page id."""
        owners = [documents.get(query.source, query.query_id) for query in lists.queries]
        folds = [self.folds.get(owner, "") for owner in owners]
        vectors = {"": self.vector, **self.fold_vectors}
        return _score_by_fold(lists.states[self.state], lists.lists, folds, vectors)


Fits = Mapping[tuple[Target, State], ReadoutFit | CalibrationError]


def fit(data: QueryLists, documents: Mapping[str, str] | None = None) -> Fits:
    """Fit the readout of every target and state; `documents` are by page id."""
    fits: dict[tuple[Target, State], ReadoutFit | CalibrationError] = {}
    for target in data.targets:
        for state in data.states:
            try:
                fits[target, state] = fit_readout(data, target, state, documents or {})
            except CalibrationError as error:
                fits[target, state] = error
    if all(isinstance(each, CalibrationError) for each in fits.values()):
        raise next(each for each in fits.values() if isinstance(each, CalibrationError))
    return fits


def fit_readout(data: QueryLists, target: Target, state: State, documents: Mapping[str, str]) -> ReadoutFit:
    """Fit to all lists in which the target varies, and to all but one fold in turn."""
    varied = np.asarray(data.lists.max(data.targets[target]) > data.lists.min(data.targets[target]))
    if not varied.any():
        raise CalibrationError(
            f"the teacher gives the candidates of each of {len(varied)} queries one and the same "
            f"{target}: there is no order to learn; use another backbone, teacher or other queries"
        )
    kept = data.select(varied)
    states, targets = kept.states[state], kept.targets[target]
    folds, few = _assign_folds(kept.queries, documents)
    list_folds = kept.lists.repeat(np.array(folds))
    moments = _sum_by_fold(states, targets, kept.lists, list_folds)
    penalty = choose_penalty_of_few(moments) if few else choose_penalty(moments)
    fold_of = {
        documents.get(query.source, query.query_id): fold
        for query, fold in zip(kept.queries, folds, strict=True)
    }
    page_folds = np.array([fold_of.get(documents.get(page, ""), "") for page in kept.page_ids])
    vectors: dict[str, Floats] = {}
    for held_out in moments:
        unseen = (list_folds != held_out) & (page_folds != held_out)
        others = _sum_rows(states, targets, kept.lists, unseen if unseen.any() else list_folds != held_out)
        [vectors[held_out]] = ridge_path(others, np.array([penalty.chosen[held_out]]))
    [vector] = ridge_path(merge_moments(moments, list(moments)), np.array([penalty.deployed]))
    squares = [each.target_square for each in moments.values()]
    validation = {
        name: sum(squares) - squares[number] if few else squares[(number + 1) % len(squares)]
        for number, name in enumerate(moments)
    }
    return ReadoutFit(
        target=target,
        state=state,
        data=kept,
        vector=vector,
        penalty=penalty,
        validation_squares=validation,
        held_out_scores=_score_by_fold(states, kept.lists, folds, vectors),
        list_folds=tuple(folds),
        folds=fold_of,
        fold_vectors=vectors,
    )


def predict_target(readout_fit: ReadoutFit) -> TargetReadout | None:
    """The readout of the target itself, from all lists; None if it explains nothing of held-out lists."""
    data = readout_fit.data
    states, targets, lists = data.states[readout_fit.state], data.targets[readout_fit.target], data.lists
    folds = readout_fit.list_folds
    readout, held_out = fit_target_readouts(
        _sum_by_fold(states, targets, lists, lists.repeat(np.array(folds))),
        mean_states=lists.sum(states) / lists.lengths[:, None],
        mean_targets=lists.sum(targets) / lists.lengths,
        folds=folds,
        members=lists.members / len(lists),
    )
    scores = _score_by_fold(states, lists, folds, {fold: each.vector for fold, each in held_out.items()})
    predicted = scores + lists.repeat(np.array([held_out[fold].intercept for fold in folds]))
    centered = targets - targets.mean()
    return readout if ((targets - predicted) ** 2).sum() < (centered**2).sum() else None


def _assign_folds(queries: Sequence[Query], documents: Mapping[str, str]) -> tuple[list[str], bool]:
    """The fold of each list, and if they are few: its corpus (§B.4), or a part of documents or lists."""
    if len(queries) < LEAST_LISTS:
        raise CalibrationError(
            f"the teacher tells the candidates of {len(queries)} queries apart, expected at least "
            f"{LEAST_LISTS}; give more queries, or index more pages"
        )
    corpora = [query.corpus for query in queries]
    if len(set(corpora)) >= 3 and all(corpora):
        return corpora, False
    few = len(corpora) < _MANY_LISTS
    parts = 4 if few else 8
    sources = [documents.get(query.source, "") for query in queries]
    named = list(dict.fromkeys(sources))
    if all(sources) and len(named) >= parts:
        return [f"part {named.index(source) % parts + 1}" for source in sources], few
    return [f"part {number % parts + 1}" for number in range(len(corpora))], few


def _sum_by_fold(
    states: Floats, targets: Floats, lists: Ragged, list_folds: NDArray[np.str_]
) -> dict[str, CenteredMoments]:
    """Sums of the lists of each fold, in the order in which folds first occur; `list_folds` (members,)."""
    folds = dict.fromkeys(list_folds.tolist())
    return {fold: _sum_rows(states, targets, lists, list_folds == fold) for fold in folds}


def _sum_rows(states: Floats, targets: Floats, lists: Ragged, rows: Bools) -> CenteredMoments:
    """Sums of the lists, of each only the `rows` (members,) marked."""
    moments = CenteredMoments(states.shape[1])
    for start, end in pairwise(lists.offsets.tolist()):
        moments.add(states[start:end][rows[start:end]], targets[start:end][rows[start:end]])
    return moments


def _score_by_fold(
    states: Floats, lists: Ragged, folds: Sequence[str], vectors: Mapping[str, Floats]
) -> Floats:
    """(members,): every list scored with the vector of its fold."""
    scores = np.empty(lists.members)
    for (start, end), fold in zip(pairwise(lists.offsets.tolist()), folds, strict=True):
        scores[start:end] = states[start:end] @ vectors[fold]
    return scores
