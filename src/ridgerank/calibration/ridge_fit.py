"""The readout and its penalty from states and margins (eq. 8-10), and held-out scores of every list.

Pure: arrays in, arrays out. The folds are corpora where three or more are named (§B.4), else parts of the
lists. A list's held-out score comes from a readout fitted on the other folds at a penalty chosen without it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from ridgerank.errors import CalibrationError
from ridgerank.fusion.correlations import correlation
from ridgerank.ragged import Bools, Floats, Ragged
from ridgerank.readout.moments import CenteredMoments
from ridgerank.readout.penalty import PenaltyChoice, choose_penalty, merged
from ridgerank.readout.ridge import ridge_path

LEAST_LISTS = 16
"""§B.3: sixteen queries reach 98 to 99 % of what 154 do; below, the paper has measured nothing."""
_LISTS_FOR_MORE_PARTS = 32


class StatesElsewhere(Protocol):
    """States of the members of some lists, held by other machines: they sum and score, arrays stay there."""

    def select(self, lists: Bools) -> "StatesElsewhere":
        """Those of some of the lists."""

    def moments(self, parts: Sequence[str], teacher: Sequence[Floats]) -> dict[str, CenteredMoments]:
        """Sums of all lists by the part each belongs to, given the targets of each list."""

    def scores(self, vectors: Sequence[Floats]) -> Floats:
        """(members,): the states of each list times a vector of its own."""


@dataclass(frozen=True, slots=True, eq=False)
class RidgeProblem:
    """Calibration queries with their candidates: what the readout learns from."""

    lists: Ragged
    corpora: tuple[str, ...]
    """(lists,): where each query was asked, empty where that is not known."""
    retriever: Floats
    """(members,): b."""
    teacher: Floats
    """(members,): t."""
    states: Floats | StatesElsewhere
    """(members, dim): h."""


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """A fitted readout, and what it is worth on lists it has not seen."""

    vector: Floats
    """(dim,), fitted on all lists."""
    choice: PenaltyChoice
    targets: dict[str, float]
    """Held-out part → the squared targets of its validation part: what an error is compared with."""
    held_out: Floats
    """(members,): each list scored by a readout fitted without it."""
    agreement: Floats
    """(lists,): r, correlation of the held-out scores with the teacher."""


def usable(lessons: RidgeProblem) -> Bools:
    """(lists,): the teacher tells the candidates apart."""
    return np.asarray(lessons.lists.max(lessons.teacher) > lessons.lists.min(lessons.teacher))


def fit(lessons: RidgeProblem) -> Fit:
    """Fit to all lists, which must be usable, and to all but one part in turn."""
    parts = _parts(lessons.corpora)
    moments = _moments(lessons, parts)
    choice = choose_penalty(moments)
    without: dict[str, Floats] = {}
    for name in moments:
        others = merged(moments, [other for other in moments if other != name])
        [without[name]] = ridge_path(others, np.array([choice.chosen[name]]))
    held_out = _scores(lessons, parts, without)
    [vector] = ridge_path(merged(moments, list(moments)), np.array([choice.deployed]))
    names = list(moments)
    validation = {name: names[(number + 1) % len(names)] for number, name in enumerate(names)}
    return Fit(
        vector=vector,
        choice=choice,
        targets={name: moments[other].target_square for name, other in validation.items()},
        held_out=held_out,
        agreement=correlation(held_out, lessons.teacher, lessons.lists),
    )


def _moments(lessons: RidgeProblem, parts: Sequence[str]) -> dict[str, CenteredMoments]:
    """Sums of the lists of each part, in the order the parts first occur."""
    slices = _slices(lessons.lists)
    if not isinstance(lessons.states, np.ndarray):
        return lessons.states.moments(parts, [lessons.teacher[own] for own in slices])
    moments = {name: CenteredMoments(lessons.states.shape[1]) for name in dict.fromkeys(parts)}
    for own, name in zip(slices, parts, strict=True):
        moments[name].add(lessons.states[own], lessons.teacher[own])
    return moments


def _scores(lessons: RidgeProblem, parts: Sequence[str], vectors: Mapping[str, Floats]) -> Floats:
    """(members,): every list scored with the vector of its part."""
    if not isinstance(lessons.states, np.ndarray):
        return lessons.states.scores([vectors[name] for name in parts])
    scores = np.empty(lessons.lists.members)
    names = list(vectors)
    part_of = lessons.lists.spread(np.array([names.index(name) for name in parts]))
    for number, name in enumerate(names):
        scores[part_of == number] = lessons.states[part_of == number] @ vectors[name]
    return scores


def _slices(lists: Ragged) -> list[slice]:
    offsets = lists.offsets.tolist()
    return [slice(start, end) for start, end in pairwise(offsets)]


def _parts(corpora: tuple[str, ...]) -> list[str]:
    """The fold of each list: its corpus where at least three are named, else its turn."""
    if len(corpora) < LEAST_LISTS:
        raise CalibrationError(
            f"{len(corpora)} queries whose candidates the full model tells apart, wanted at least "
            f"{LEAST_LISTS}; give more queries (--queries), or index more pages"
        )
    if len(set(corpora)) >= 3 and all(corpora):
        return list(corpora)
    count = 4 if len(corpora) < _LISTS_FOR_MORE_PARTS else 8
    return [f"part {number % count + 1}" for number in range(len(corpora))]
