"""The readout and its penalty from states and targets (eq. 8-10), and held-out scores of every list.

Pure: arrays in, arrays out. The folds are corpora where three or more are named (§B.4), else parts of the
lists. A list's held-out score comes from a readout fitted on the other folds at a penalty chosen without it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ridgerank.errors import CalibrationError
from ridgerank.fusion.correlations import correlation
from ridgerank.ragged import Bools, Floats, Ragged
from ridgerank.readout.moments import CenteredMoments
from ridgerank.readout.ridge import (
    ListMeans,
    PenaltyChoice,
    TargetReadout,
    choose_penalty,
    choose_penalty_of_few,
    fit_target_readouts,
    merge_moments,
    ridge_path,
)

LEAST_LISTS = 16
"""§B.3: sixteen queries reach 98 to 99 % of what 154 do; below, the paper has measured nothing."""
_MANY_LISTS = 32
"""From here on there are eight folds, and one is enough to choose a penalty by."""


@dataclass(frozen=True, slots=True, eq=False)
class RidgeProblem:
    """Calibration queries with their candidates: what the readout is fitted to."""

    lists: Ragged
    corpora: tuple[str, ...]
    """(lists,): the corpus of each query, empty where that is not known."""
    retriever: Floats
    """(members,): b."""
    targets: Floats
    """(members,): t."""
    states: Floats
    """(members, dim): h."""


@dataclass(frozen=True, slots=True, eq=False)
class RidgeFit:
    """A fitted readout, and its scores on lists it was not fitted on."""

    vector: Floats
    """(dim,), fitted on all lists."""
    penalty: PenaltyChoice
    validation_squares: dict[str, float]
    """Held-out fold → the squared targets of its validation folds, with which an error is compared."""
    held_out_scores: Floats
    """(members,): each list scored by a readout fitted without it."""
    agreement: Floats
    """(lists,): r, correlation of the held-out scores with the targets."""


def find_varied_lists(problem: RidgeProblem) -> Bools:
    """(lists,): the target differs between candidates."""
    return np.asarray(problem.lists.max(problem.targets) > problem.lists.min(problem.targets))


def fit_readout(problem: RidgeProblem) -> RidgeFit:
    """Fit to all lists, whose targets must vary, and to all but one fold in turn."""
    folds = assign_folds(problem.corpora)
    moments = sum_by_fold(problem, folds)
    few = len(folds) < _MANY_LISTS and not _names_corpora(problem.corpora)
    penalty = choose_penalty_of_few(moments) if few else choose_penalty(moments)
    vectors: dict[str, Floats] = {}
    for held_out in moments:
        others = merge_moments(moments, [fold for fold in moments if fold != held_out])
        [vectors[held_out]] = ridge_path(others, np.array([penalty.chosen[held_out]]))
    held_out_scores = score_by_fold(problem, folds, vectors)
    [vector] = ridge_path(merge_moments(moments, list(moments)), np.array([penalty.deployed]))
    names = list(moments)
    squares = [moments[name].target_square for name in names]
    validation = {
        name: sum(squares) - squares[number] if few else squares[(number + 1) % len(names)]
        for number, name in enumerate(names)
    }
    return RidgeFit(
        vector=vector,
        penalty=penalty,
        validation_squares=validation,
        held_out_scores=held_out_scores,
        agreement=correlation(held_out_scores, problem.targets, problem.lists),
    )


def predict_target(problem: RidgeProblem) -> TargetReadout | None:
    """The readout of the target itself, from all lists; None if it explains nothing of held-out lists."""
    folds = assign_folds(problem.corpora)
    means = ListMeans(
        states=problem.lists.sum(problem.states) / problem.lists.lengths[:, None],
        targets=problem.lists.sum(problem.targets) / problem.lists.lengths,
        folds=tuple(folds),
        members=problem.lists.members / len(problem.lists),
    )
    readout, held_out = fit_target_readouts(sum_by_fold(problem, folds), means)
    scores = score_by_fold(problem, folds, {fold: each.vector for fold, each in held_out.items()})
    predicted = scores + problem.lists.repeat(np.array([held_out[fold].intercept for fold in folds]))
    centered = problem.targets - problem.targets.mean()
    return readout if ((problem.targets - predicted) ** 2).sum() < (centered**2).sum() else None


def sum_by_fold(problem: RidgeProblem, folds: Sequence[str]) -> dict[str, CenteredMoments]:
    """Sums of the lists of each fold, in the order in which folds first occur."""
    slices = [slice(start, end) for start, end in pairwise(problem.lists.offsets.tolist())]
    moments = {fold: CenteredMoments(problem.states.shape[1]) for fold in dict.fromkeys(folds)}
    for members, fold in zip(slices, folds, strict=True):
        moments[fold].add(problem.states[members], problem.targets[members])
    return moments


def score_by_fold(problem: RidgeProblem, folds: Sequence[str], vectors: Mapping[str, Floats]) -> Floats:
    """(members,): every list scored with the vector of its fold."""
    scores = np.empty(problem.lists.members)
    names = list(vectors)
    fold_numbers = problem.lists.repeat(np.array([names.index(fold) for fold in folds]))
    for number, fold in enumerate(names):
        members = fold_numbers == number
        scores[members] = problem.states[members] @ vectors[fold]
    return scores


def assign_folds(corpora: tuple[str, ...]) -> list[str]:
    """The fold of each list: its corpus where at least three are named, else in turn."""
    if len(corpora) < LEAST_LISTS:
        raise CalibrationError(
            f"{len(corpora)} queries whose candidates the teacher tells apart, wanted at least "
            f"{LEAST_LISTS}; give more queries (--queries), or index more pages"
        )
    if _names_corpora(corpora):
        return list(corpora)
    count = 4 if len(corpora) < _MANY_LISTS else 8
    return [f"part {number % count + 1}" for number in range(len(corpora))]


def _names_corpora(corpora: tuple[str, ...]) -> bool:
    return len(set(corpora)) >= 3 and all(corpora)
