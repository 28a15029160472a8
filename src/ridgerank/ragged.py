"""Candidate lists laid end to end, values and offsets, so that formulas never loop over queries."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgerank.errors import ScoreError

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """Where each list starts in a flat array: list i is `values[offsets[i]:offsets[i + 1]]`."""

    offsets: Ints
    """(lists + 1,), strictly increasing from 0."""

    @classmethod
    def of_lengths(cls, lengths: Iterable[int]) -> Self:
        """Lists of the given lengths; every list has at least one member."""
        sizes = np.fromiter(lengths, dtype=np.int64)
        if (sizes < 1).any():
            raise ScoreError(f"candidate list {int(np.argmax(sizes < 1))} is empty; leave such queries out")
        return cls(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Ints:
        """(lists,) how many members each list has."""
        return np.diff(self.offsets)

    @property
    def members(self) -> int:
        """How many members all lists have together."""
        return int(self.offsets[-1])

    def sum(self, values: Floats) -> Floats:
        """(members, …) → (lists, …): the sum within each list."""
        return np.asarray(np.add.reduceat(values, self.offsets[:-1], axis=0)) if len(self) else values[:0]

    def min(self, values: Floats) -> Floats:
        """(members,) → (lists,): the least member of each list."""
        return np.asarray(np.minimum.reduceat(values, self.offsets[:-1])) if len(self) else values[:0]

    def max(self, values: Floats) -> Floats:
        """(members,) → (lists,): the greatest member of each list."""
        return np.asarray(np.maximum.reduceat(values, self.offsets[:-1])) if len(self) else values[:0]

    def repeat(self, per_list: NDArray[Scalar]) -> NDArray[Scalar]:
        """(lists, …) → (members, …): each list's value, repeated for its members."""
        return np.repeat(per_list, self.lengths, axis=0)

    def list_numbers(self) -> Ints:
        """(members,): the number of the list a member belongs to."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.lengths)

    def positions(self) -> Ints:
        """(members,): a member's position in its list, from 0."""
        return np.arange(self.members, dtype=np.int64) - np.repeat(self.offsets[:-1], self.lengths)

    def center(self, values: Floats) -> Floats:
        """P v within each list, eq. 7: (members, …) minus the list's mean."""
        shape = (-1,) + (1,) * (values.ndim - 1)
        means = self.sum(values) / self.lengths.reshape(shape)
        return values - np.repeat(means, self.lengths, axis=0)

    def ranks(self, scores: Floats) -> Ints:
        """(members,): rank from 1 within the list, highest score first, equal scores in order of position."""
        order = np.lexsort((-scores, self.list_numbers()))
        ranks = np.empty(self.members, dtype=np.int64)
        ranks[order] = self.positions() + 1
        return ranks

    def select(self, chosen: Bools) -> tuple[Self, Bools]:
        """Keep the lists marked in `chosen` (lists,): the remaining lists and the mask of their members."""
        return type(self).of_lengths(self.lengths[chosen]), np.repeat(chosen, self.lengths)


def finite_scores(values: ArrayLike, lists: Ragged, *, what: str) -> Floats:
    """Scores as a float64 array of one number per member; NaN, infinity and wrong lengths are refused."""
    scores = np.ascontiguousarray(values, dtype=np.float64)
    if scores.shape != (lists.members,):
        raise ScoreError(
            f"{what}: array of shape {scores.shape}, expected a score for each of {lists.members} candidates"
        )
    bad = ~np.isfinite(scores)
    if bad.any():
        member = int(np.argmax(bad))
        number = int(np.searchsorted(lists.offsets, member, side="right")) - 1
        raise ScoreError(
            f"{what}: {scores[member]} in list {number}, candidate {member - int(lists.offsets[number])}; "
            "scores must be finite numbers, leave out candidates that have none"
        )
    return scores
