"""Readouts fitted to calibration lists, weighed, and one of them selected with a reason.

A readout is fitted by ridge regression (eq. 8-10). The folds are corpora where three or more are named
(§B.4), else parts of the lists. A list's held-out score comes from a readout fitted on the other folds at a
penalty chosen without it.

The paper asks for the margin and reads the last position; a model that was never taught to answer yes or no
may have a poor margin and still know which query belongs to which page. No judgement is needed to see it:
- a target that tells candidates apart has spread;
- the retriever is a witness. Under the one-factor model (§B.6) its correlation with any score is c_b times
  that score's own correlation with relevance, and c_b is the same for all. So ρ_bt ranks targets by c_t and
  ρ_bs ranks readouts by c_s;
- the held-out r says how much of the target the state carries.

An option is a target and a state. It is *supported* where its weight is an estimate and promises a gain
(`weight.py`). ρ_bs compares options. But retriever and likelihood both count words, and share more
than relevance. So the paper's option, where it is supported, gives way only to one whose ρ_bs is `_CLEARLY`
times as large.
Where the paper's option is not supported, the supported option of largest ρ_bs is selected; where none is,
the paper's stays, with its warnings. With judgements, c_s is measured and takes the place of ρ_bs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, pairwise

import numpy as np

from ridgerank.calibration.artifact import ReadoutOption
from ridgerank.calibration.weight import WeightDecision, decide_weight, mean_interval
from ridgerank.errors import CalibrationError
from ridgerank.fusion.correlations import correlate, correlation
from ridgerank.fusion.estimate import BEYOND_CHANCE
from ridgerank.fusion.standardize import discounts, standard_deviations
from ridgerank.fusion.weight import WeightEstimate
from ridgerank.ragged import Bools, Floats, Ragged
from ridgerank.readout.moments import CenteredMoments
from ridgerank.readout.ridge import (
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
PAPER: tuple[Target, State] = ("margin", "last")
_MANY_LISTS = 32
"""From here on there are eight folds, and one is enough to choose a penalty by."""
_CLEARLY = 1.5
"""Between scores of very different kinds, what they share with a retriever beyond relevance differed by a
factor of 1.3 (docs/real-documents.md)."""


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationLists:
    """Queries with their candidates, laid end to end, by every target and state that may be selected."""

    queries: tuple[Query, ...]
    """(lists,)."""
    page_ids: tuple[str, ...]
    """(members,)."""
    lists: Ragged
    retriever: Floats
    """(members,): b."""
    targets: Mapping[Target, Floats]
    """(members,) each: t."""
    states: Mapping[State, Floats]
    """(members, dim) each: h."""
    relevance: Floats | None
    """(members,), where there are judgements."""

    def select(self, target: Target, state: State, chosen: Bools) -> "CalibrationLists":
        """The lists marked in `chosen` (lists,), with one target and one state."""
        lists, members = self.lists.select(chosen)
        return CalibrationLists(
            queries=tuple(compress(self.queries, chosen)),
            page_ids=tuple(compress(self.page_ids, members)),
            lists=lists,
            retriever=self.retriever[members],
            targets={target: self.targets[target][members]},
            states={state: self.states[state][members]},
            relevance=None if self.relevance is None else self.relevance[members],
        )


@dataclass(frozen=True, slots=True, eq=False)
class ReadoutFit:
    """The readout of one target and state, and its scores on lists it was not fitted on."""

    data: CalibrationLists
    """The lists it was fitted to: those in which the target varies."""
    varied: Bools
    """(all lists,): those of `data`."""
    states: Floats
    """(members, dim) of `data`."""
    targets: Floats
    """(members,) of `data`."""
    vector: Floats
    """(dim,), fitted on all lists of `data`."""
    penalty: PenaltyChoice
    validation_squares: Mapping[str, float]
    """Held-out fold → the squared targets of its validation folds, with which an error is compared."""
    held_out_scores: Floats
    """(members,): each list scored by a readout fitted without it."""


@dataclass(frozen=True, slots=True, eq=False)
class WeighedReadout:
    """One option with its fit and its weight."""

    option: ReadoutOption
    fit: ReadoutFit
    decision: WeightDecision
    witness_correlations: Floats
    """(all lists,): query by query, the readout's correlation with relevance where judged, else with the
    retriever; 0 where the target does not vary."""


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """The selected option, the reason, and all options that were measured."""

    selected: WeighedReadout
    reason: str
    options: tuple[ReadoutOption, ...]
    fitted: tuple[WeighedReadout, ...]
    """The options that could be fitted, in the same order."""


Fits = Mapping[tuple[Target, State], ReadoutFit | CalibrationError]
"""The readout of every target and state, or why there is none."""


def fit(data: CalibrationLists) -> Fits:
    """Fit the readout of every target and state."""
    fits: dict[tuple[Target, State], ReadoutFit | CalibrationError] = {}
    for target in data.targets:
        for state in data.states:
            try:
                fits[target, state] = fit_readout(data, target, state)
            except CalibrationError as error:
                fits[target, state] = error
    return fits


def weigh(data: CalibrationLists, fits: Fits, *, transferred: WeightEstimate | None = None) -> Selection:
    """Decide the weight of every fitted option and select one; without any, raise the first reason.

    A weight `transferred` from the judgements of another corpus is deployed if there are none here.
    """
    fitted: list[WeighedReadout] = []
    options: list[ReadoutOption] = []
    for (target, state), readout_fit in fits.items():
        if isinstance(readout_fit, CalibrationError):
            options.append(_unfitted_option(target, state, str(readout_fit)))
        else:
            fitted.append(_weigh_option(target, state, readout_fit, transferred))
            options.append(fitted[-1].option)
    if not fitted:
        raise next(error for error in fits.values() if isinstance(error, CalibrationError))
    selected, reason = _select(fitted, judged=data.relevance is not None)
    return Selection(selected, reason, tuple(options), tuple(fitted))


def fit_readout(data: CalibrationLists, target: Target, state: State) -> ReadoutFit:
    """Fit to all lists in which the target varies, and to all but one fold in turn."""
    varied = np.asarray(data.lists.max(data.targets[target]) > data.lists.min(data.targets[target]))
    if not varied.any():
        raise CalibrationError(
            f"the teacher gives the candidates of each of {len(varied)} queries one and the same "
            f"{target}: there is no order to learn; use another backbone, teacher or other queries"
        )
    kept = data.select(target, state, varied)
    states, targets = kept.states[state], kept.targets[target]
    folds, few = _assign_folds(kept.queries)
    moments = _sum_by_fold(states, targets, kept.lists, folds)
    penalty = choose_penalty_of_few(moments) if few else choose_penalty(moments)
    vectors: dict[str, Floats] = {}
    for held_out in moments:
        others = merge_moments(moments, [fold for fold in moments if fold != held_out])
        [vectors[held_out]] = ridge_path(others, np.array([penalty.chosen[held_out]]))
    [vector] = ridge_path(merge_moments(moments, list(moments)), np.array([penalty.deployed]))
    squares = [each.target_square for each in moments.values()]
    validation = {
        name: sum(squares) - squares[number] if few else squares[(number + 1) % len(squares)]
        for number, name in enumerate(moments)
    }
    return ReadoutFit(
        data=kept,
        varied=varied,
        states=states,
        targets=targets,
        vector=vector,
        penalty=penalty,
        validation_squares=validation,
        held_out_scores=_score_by_fold(states, kept.lists, folds, vectors),
    )


def predict_target(readout_fit: ReadoutFit) -> TargetReadout | None:
    """The readout of the target itself, from all lists; None if it explains nothing of held-out lists."""
    states, targets, lists = readout_fit.states, readout_fit.targets, readout_fit.data.lists
    folds, _ = _assign_folds(readout_fit.data.queries)
    readout, held_out = fit_target_readouts(
        _sum_by_fold(states, targets, lists, folds),
        mean_states=lists.sum(states) / lists.lengths[:, None],
        mean_targets=lists.sum(targets) / lists.lengths,
        folds=folds,
        members=lists.members / len(lists),
    )
    scores = _score_by_fold(states, lists, folds, {fold: each.vector for fold, each in held_out.items()})
    predicted = scores + lists.repeat(np.array([held_out[fold].intercept for fold in folds]))
    centered = targets - targets.mean()
    return readout if ((targets - predicted) ** 2).sum() < (centered**2).sum() else None


def _assign_folds(queries: Sequence[Query]) -> tuple[list[str], bool]:
    """The fold of each list, its corpus where at least three are named, else in turn; and if they are few."""
    if len(queries) < LEAST_LISTS:
        raise CalibrationError(
            f"the teacher tells the candidates of {len(queries)} queries apart, expected at least "
            f"{LEAST_LISTS}; give more queries, or index more pages"
        )
    corpora = [query.corpus for query in queries]
    if len(set(corpora)) >= 3 and all(corpora):
        return corpora, False
    few = len(corpora) < _MANY_LISTS
    return [f"part {number % (4 if few else 8) + 1}" for number in range(len(corpora))], few


def _sum_by_fold(
    states: Floats, targets: Floats, lists: Ragged, folds: Sequence[str]
) -> dict[str, CenteredMoments]:
    """Sums of the lists of each fold, in the order in which folds first occur."""
    moments = {fold: CenteredMoments(states.shape[1]) for fold in dict.fromkeys(folds)}
    for (start, end), fold in zip(pairwise(lists.offsets.tolist()), folds, strict=True):
        moments[fold].add(states[start:end], targets[start:end])
    return moments


def _score_by_fold(
    states: Floats, lists: Ragged, folds: Sequence[str], vectors: Mapping[str, Floats]
) -> Floats:
    """(members,): every list scored with the vector of its fold."""
    scores = np.empty(lists.members)
    names = list(vectors)
    fold_numbers = lists.repeat(np.array([names.index(fold) for fold in folds]))
    for number, fold in enumerate(names):
        members = fold_numbers == number
        scores[members] = states[members] @ vectors[fold]
    return scores


def _select(fitted: Sequence[WeighedReadout], *, judged: bool) -> tuple[WeighedReadout, str]:
    first = next((each for each in fitted if (each.option.target, each.option.state) == PAPER), fitted[0])
    if len(fitted) == 1:
        return first, "the only reading asked for, or the only one that could be fitted"
    supported = [each for each in fitted if each.option.supported]
    if not supported:
        return first, f"{first.option.name}: the first choice, though this model supports no reading"
    best = max(supported, key=lambda each: float(each.witness_correlations.mean()))
    if not first.option.supported:
        return best, (
            f"{best.option.name}: of the readings this model supports the one closest to relevance; "
            f"{first.option.name} is not supported: {first.option.note}"
        )
    if best is first or not _is_clearly_better(best, first, factor=1.0 if judged else _CLEARLY):
        return first, f"{first.option.name}: the first choice, and this model supports it"
    witness = "relevance" if judged else "the retriever, the only witness,"
    return best, (
        f"{best.option.name}: its correlation with {witness} is {best.witness_correlations.mean():.2f}, "
        f"clearly more than that of {first.option.name}, {first.witness_correlations.mean():.2f}"
    )


def _is_clearly_better(better: WeighedReadout, other: WeighedReadout, *, factor: float) -> bool:
    """Its correlation with the witness is larger by this factor, and larger beyond chance."""
    values, other_values = better.witness_correlations, other.witness_correlations
    _, (least, _) = mean_interval(values - other_values, errors=BEYOND_CHANCE)
    return bool(values.mean() > factor * other_values.mean() and least > 0)


def _weigh_option(
    target: Target, state: State, readout_fit: ReadoutFit, transferred: WeightEstimate | None
) -> WeighedReadout:
    data, varied = readout_fit.data, readout_fit.varied
    b, s, t, lists = data.retriever, readout_fit.held_out_scores, readout_fit.targets, data.lists
    relevance = data.relevance
    judged = teacher_relevance = None
    if relevance is not None:
        judged = correlate(b, s, relevance, lists)
        teacher_relevance = float(correlate(b, t, relevance, lists).reranker.mean())
    decision = decide_weight(
        b, s, t, lists, judged, teacher_relevance=teacher_relevance, transferred=transferred
    )
    option = ReadoutOption(
        target=target,
        state=state,
        varied_share=len(lists) / len(varied),
        spread=float(standard_deviations(t, lists).mean()),
        retriever_target=decision.retriever_target,
        retriever_readout=decision.retriever_readout,
        agreement=decision.agreement,
        relevance=(decision.closed_form or decision.label_free).c_s,
        supported=not decision.warnings,
        note=decision.deployed.cause if decision.warnings else "",
    )
    witness_correlations = np.zeros(len(varied))
    witness_correlations[varied] = correlation(
        s, b if relevance is None else relevance, lists, weights=discounts(b, lists)
    )
    return WeighedReadout(option, readout_fit, decision, witness_correlations)


def _unfitted_option(target: Target, state: State, reason: str) -> ReadoutOption:
    unknown = float("nan")
    return ReadoutOption(
        target=target,
        state=state,
        varied_share=unknown,
        spread=unknown,
        retriever_target=unknown,
        retriever_readout=unknown,
        agreement=unknown,
        relevance=unknown,
        supported=False,
        note=reason,
    )
