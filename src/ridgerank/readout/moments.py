"""Centered sums of states and targets, accumulated as lists stream by (eq. 7-8).

A list of K pages has K − 1 degrees of freedom once its mean is gone: it is kept as K − 1 orthonormal
contrasts, which give the same sums from fewer rows. Memory is O(d²) however many pairs are added. As long as
there are fewer contrasts than dimensions, the contrasts themselves are kept (the dual form needs no more);
after that, their products H'PH and H'Pt. Everything is float64.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from ridgerank.errors import CalibrationError
from ridgerank.ragged import Floats

_BLOCK_ROWS = 1024
"""Rows gathered before they are folded into the products: a product of many rows runs at full speed."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Fewer contrasts than dimensions: the contrasts themselves. Their products are H_c'H_c and H_c't_c."""

    states: Floats
    """(contrasts, dim)."""
    targets: Floats
    """(contrasts,)."""


@dataclass(frozen=True, slots=True, eq=False)
class Products:
    """At least as many contrasts as dimensions: their sums."""

    gram: Floats
    """H'PH, (dim, dim)."""
    moment: Floats
    """H'Pt, (dim,)."""


Problem: TypeAlias = Rows | Products


class CenteredMoments:
    """The sufficient statistics of eq. 8, built list by list and merged across corpora or machines."""

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.pairs = 0
        self.lists = 0
        self.target_square = 0.0
        self._gram: Floats | None = None
        self._moment: Floats = np.zeros(dim)
        self._states: list[Floats] = []
        self._targets: list[Floats] = []
        self._pending_rows = 0

    def add(self, states: ArrayLike, targets: ArrayLike) -> None:
        """Add one candidate list: states (K, dim), targets (K,), for any K ≥ 1."""
        H = np.asarray(states, dtype=np.float64)
        t = np.asarray(targets, dtype=np.float64)
        if H.ndim != 2 or H.shape[1] != self.dim or t.shape != (len(H),):
            raise CalibrationError(
                f"states of shape {H.shape} with targets of shape {t.shape}, "
                f"expected (K, {self.dim}) and (K,): one state and one target per candidate"
            )
        if not (np.isfinite(H).all() and np.isfinite(t).all()):
            raise CalibrationError("a state or target is NaN or infinite; leave that candidate out")
        if len(H) == 0:
            return
        # Equal targets center to exact zeros, whatever their mean rounds to.
        centered = t - t.mean() if t.max() > t.min() else np.zeros(len(t))
        self._append(_contrasts(H - H.mean(axis=0)), _contrasts(centered))
        self.pairs += len(H)
        self.lists += 1

    def merge(self, other: "CenteredMoments") -> None:
        """Add all lists of another corpus; the order of merging does not matter but for rounding."""
        if other.dim != self.dim:
            raise CalibrationError(
                f"moments of {other.dim} dimensions, expected {self.dim}: they are of another model"
            )
        if other._gram is not None:
            self._add_to_products()
            assert self._gram is not None
            self._gram += other._gram
            self._moment += other._moment
            self.target_square += other.target_square - sum(float(t @ t) for t in other._targets)
        for H, t in zip(other._states, other._targets, strict=True):
            self._append(H, t)
        self.pairs += other.pairs
        self.lists += other.lists

    def problem(self) -> Problem:
        """What there is to solve: the contrasts, or their products once they outnumber dimensions."""
        if self._gram is None:
            return Rows(self._stack(), np.concatenate([*self._targets, np.zeros(0)]))
        self._add_to_products()
        return Products(self._gram, self._moment)

    def squared_error(self, readouts: Floats) -> Floats:
        """Σ_q ‖P(H_q a − t_q)‖² for each row of `readouts` (n, dim) → (n,): held-out error, no penalty."""
        problem = self.problem()
        errors: Floats
        if isinstance(problem, Rows):
            residuals = readouts @ problem.states.T - problem.targets
            errors = np.einsum("np,np->n", residuals, residuals)
        else:
            quadratic = np.einsum("nd,nd->n", readouts @ problem.gram, readouts)
            # Expanding the square loses digits when the fit is nearly perfect; an error is never negative.
            errors = np.maximum(quadratic - 2.0 * readouts @ problem.moment + self.target_square, 0.0)
        return errors

    def _append(self, H: Floats, t: Floats) -> None:
        self._states.append(H)
        self._targets.append(t)
        self._pending_rows += len(H)
        self.target_square += float(t @ t)
        limit = self.dim if self._gram is None else _BLOCK_ROWS
        if self._pending_rows > limit:
            self._add_to_products()

    def _add_to_products(self) -> None:
        if self._gram is None:
            self._gram = np.zeros((self.dim, self.dim))
        if self._states:
            H, t = self._stack(), np.concatenate(self._targets)
            self._gram += H.T @ H
            self._moment = self._moment + H.T @ t
            self._states, self._targets, self._pending_rows = [], [], 0

    def _stack(self) -> Floats:
        if len(self._states) > 1:
            self._states = [np.concatenate(self._states)]
            self._targets = [np.concatenate(self._targets)]
        return self._states[0] if self._states else np.zeros((0, self.dim))


def _contrasts(centered: Floats) -> Floats:
    """(K, …) → (K − 1, …): √(i / (i + 1)) · (mean of the first i − member i + 1), Helmert's basis.

    Its rows are orthonormal and orthogonal to the ones, so products of contrasts are products of centered
    members, and nothing of a list's mean is left.
    """
    count = np.arange(1.0, len(centered)).reshape((-1,) + (1,) * (centered.ndim - 1))
    means = np.cumsum(centered, axis=0)[:-1] / count
    contrasts: Floats = np.sqrt(count / (count + 1.0)) * (means - centered[1:])
    return contrasts
