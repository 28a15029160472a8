"""The target itself from a state, not only its order within a list: comparable across queries.

The readout of eq. 8 is fitted on centered lists. What a query adds to all of its candidates is gone then, and
two queries' scores cannot be compared. This one is fitted to the lists' means as well: moments within lists
and moments between them, with the same ridge and the same choice of λ.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ridgerank.ragged import Floats
from ridgerank.readout.moments import CenteredMoments
from ridgerank.readout.penalty import choose_penalty, merge_moments
from ridgerank.readout.ridge import ridge_path


@dataclass(frozen=True, slots=True, eq=False)
class TargetReadout:
    """t̂ = v'h + intercept."""

    vector: Floats
    """(dim,)."""
    intercept: float
    penalty: float
    """λ it was fitted with."""

    def predict(self, states: Floats) -> Floats:
        """(K, dim) → (K,): the target each page would get at full depth."""
        return states @ self.vector + self.intercept


@dataclass(frozen=True, slots=True, eq=False)
class ListMeans:
    """The mean state and target of every list, and the fold each list belongs to."""

    states: Floats
    """(lists, dim)."""
    targets: Floats
    """(lists,)."""
    folds: tuple[str, ...]
    members: float
    """Candidates per list, on average: how often a list's mean counts."""


def add_between_lists(within: Mapping[str, CenteredMoments], means: ListMeans) -> dict[str, CenteredMoments]:
    """Moments around the mean of each fold: those within its lists, and those of its lists' means.

    Every list's mean counts as often as a list has members on average.
    """
    scale = np.sqrt(means.members)
    fold_names = np.array(means.folds, dtype=object)
    total = {}
    for fold, moments in within.items():
        between = CenteredMoments(moments.dim)
        lists = fold_names == fold
        between.add(scale * means.states[lists], scale * means.targets[lists])
        total[fold] = merge_moments({"within": moments, "between": between}, ["within", "between"])
    return total


def fit_target_readouts(
    within: Mapping[str, CenteredMoments], means: ListMeans
) -> tuple[TargetReadout, dict[str, TargetReadout]]:
    """The readout of all lists, and for each fold the one fitted on the others, at a λ chosen without it."""
    total = add_between_lists(within, means)
    penalty = choose_penalty(total)

    def fit(names: Sequence[str], chosen: float) -> TargetReadout:
        [vector] = ridge_path(merge_moments(total, names), np.array([chosen]))
        lists = np.isin(np.array(means.folds, dtype=object), names)
        intercept = float((means.targets[lists] - means.states[lists] @ vector).mean())
        return TargetReadout(vector, intercept, chosen)

    held_out = {fold: fit([name for name in total if name != fold], penalty.chosen[fold]) for fold in total}
    return fit(list(total), penalty.deployed), held_out
