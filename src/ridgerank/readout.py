"""The readout: its sums, the ridge that solves it, the choice of its penalty. Pure.

A list of K pages has K − 1 degrees of freedom once its mean is gone: it is kept as K − 1 orthonormal
contrasts, which give the same sums from fewer rows (eq. 7-8). Everything is float64.

The readout of eq. 8 is fitted on centered lists: two queries' scores cannot be compared. `TargetReadout` is
fitted to the lists' means as well and predicts the target itself.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike

from ridgerank.errors import CalibrationError
from ridgerank.lineage import Lineage
from ridgerank.ragged import Floats

PENALTIES: Floats = np.logspace(-3, 6, 10)
"""λ from 10⁻³ to 10⁶; the paper's choices, 10¹ to 10⁴, lie inside."""
_BLOCK_ROWS = 1024
"""Rows gathered before they are folded into the products: a product of many rows runs at full speed."""


class CenteredMoments:
    """The sufficient statistics of eq. 8, built list by list and merged across corpora: O(d²) of memory.

    Contrasts are kept as they are while there are fewer of them than dimensions, for the dual form; after
    that, their products H'PH and H'Pt.
    """

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.lists = 0
        self.target_square = 0.0
        self._gram: Floats | None = None
        self._moment: Floats = np.zeros(dim)
        self._states: list[Floats] = []
        self._targets: list[Floats] = []

    def add(self, states: ArrayLike, targets: ArrayLike) -> None:
        """Add one candidate list: states (K, dim), targets (K,), for any K ≥ 1."""
        H = np.asarray(states, dtype=np.float64)
        t = np.asarray(targets, dtype=np.float64)
        if not (np.isfinite(H).all() and np.isfinite(t).all()):
            raise CalibrationError("a state or target is NaN or infinite; leave that candidate out")
        if len(H) == 0:
            return
        # Equal targets center to exact zeros, whatever their mean rounds to.
        centered = t - t.mean() if t.max() > t.min() else np.zeros(len(t))
        self._append(_contrasts(H - H.mean(axis=0)), _contrasts(centered))
        self.lists += 1

    def merge(self, other: "CenteredMoments") -> None:
        """Add all lists of another corpus; the order of merging does not matter but for rounding."""
        if other._gram is not None:
            gram, moment = self._add_to_products()
            self._gram, self._moment = gram + other._gram, moment + other._moment
            self.target_square += other.target_square - sum(float(t @ t) for t in other._targets)
        for H, t in zip(other._states, other._targets, strict=True):
            self._append(H, t)
        self.lists += other.lists

    def rows(self) -> tuple[Floats, Floats] | None:
        """The contrasts H_c and t_c while they are fewer than dimensions; None after that."""
        if self._gram is not None:
            return None
        H, t = np.zeros((0, self.dim)), np.zeros(0)
        return np.concatenate([H, *self._states]), np.concatenate([t, *self._targets])

    def products(self) -> tuple[Floats, Floats]:
        """H'PH, (dim, dim), and H'Pt, (dim,)."""
        rows = self.rows()
        return self._add_to_products() if rows is None else (rows[0].T @ rows[0], rows[0].T @ rows[1])

    def squared_error(self, readouts: Floats) -> Floats:
        """Σ_q ‖P(H_q a − t_q)‖² for each row of `readouts` (n, dim) → (n,): held-out error, no penalty."""
        errors: Floats
        if (rows := self.rows()) is not None:
            residuals = readouts @ rows[0].T - rows[1]
            errors = np.einsum("np,np->n", residuals, residuals)
        else:
            gram, moment = self.products()
            quadratic = np.einsum("nd,nd->n", readouts @ gram, readouts)
            # Expanding the square loses digits when the fit is nearly perfect; an error is never negative.
            errors = np.maximum(quadratic - 2.0 * readouts @ moment + self.target_square, 0.0)
        return errors

    def _append(self, H: Floats, t: Floats) -> None:
        self._states.append(H)
        self._targets.append(t)
        self.target_square += float(t @ t)
        if sum(map(len, self._targets)) > (self.dim if self._gram is None else _BLOCK_ROWS):
            self._add_to_products()

    def _add_to_products(self) -> tuple[Floats, Floats]:
        """Fold the rows gathered so far into the products, and return these."""
        gram = np.zeros((self.dim, self.dim)) if self._gram is None else self._gram
        if self._states:
            H, t = np.concatenate(self._states), np.concatenate(self._targets)
            gram = gram + H.T @ H
            self._moment = self._moment + H.T @ t
            self._states, self._targets = [], []
        self._gram = gram
        return gram, self._moment


def _contrasts(centered: Floats) -> Floats:
    """(K, …) → (K − 1, …): √(i / (i + 1)) · (mean of the first i − member i + 1), Helmert's basis.

    Its rows are orthonormal and orthogonal to the ones, so products of contrasts are products of centered
    members, and nothing of a list's mean is left.
    """
    count = np.arange(1.0, len(centered)).reshape((-1,) + (1,) * (centered.ndim - 1))
    means = np.cumsum(centered, axis=0)[:-1] / count
    contrasts: Floats = np.sqrt(count / (count + 1.0)) * (means - centered[1:])
    return contrasts


def merge_moments(corpora: Mapping[str, CenteredMoments], names: Sequence[str]) -> CenteredMoments:
    """The moments of several corpora together; the originals stay as they are."""
    total = CenteredMoments(corpora[names[0]].dim)
    for name in names:
        total.merge(corpora[name])
    return total


def ridge_path(moments: CenteredMoments, penalties: Floats = PENALTIES) -> Floats:
    """a = (H_c'H_c + λI)⁻¹ H_c't_c for every λ: (penalties, dim).

    With fewer contrasts than dimensions the dual form H_c'(H_c H_c' + λI)⁻¹ t_c gives the same vectors.
    """
    if moments.target_square == 0.0:
        raise CalibrationError(
            f"the targets of all {moments.lists} lists are constant within their list: "
            "there is no order to learn; expected lists in which the full model tells pages apart"
        )
    if (rows := moments.rows()) is not None:
        H, t = rows
        return solve_path(H @ H.T, t, penalties, lambda x: (x @ H) @ H.T) @ H
    gram, moment = moments.products()
    return solve_path(gram, moment, penalties, lambda x: x @ gram)


def solve_path(
    gram: Floats, right: Floats, penalties: Floats, multiply: Callable[[Floats], Floats]
) -> Floats:
    """x of (G + λI) x = r for every λ: (n, n), (n,), (penalties,) → (penalties, n).

    Where λ is near the rounding of G, eigenvalues that are only rounding are left out: λ → 0 is the
    least-squares solution of least norm. `multiply` is x ↦ G x for one step of refinement. From rows it goes
    through H, which has digits that HH' has lost.
    """
    values, vectors = np.linalg.eigh(gram)
    rounding, lambdas = np.finfo(np.float64).eps * np.trace(gram), penalties[:, None]
    left_out = (values <= rounding) & (lambdas <= 1e4 * rounding)
    shifted = np.where(left_out, np.inf, np.maximum(values, 0.0) + lambdas)

    def invert(rights: Floats) -> Floats:
        solution: Floats = (rights @ vectors / shifted) @ vectors.T
        return solution

    x = invert(right)
    return x + invert(right - lambdas * x - multiply(x))


@dataclass(frozen=True, slots=True, eq=False)
class PenaltyChoice:
    """The λ a rule picked in each fold and the one it deploys."""

    penalties: Floats
    errors: Mapping[str, Floats]
    """Held-out corpus → error on its validation corpora at each λ (lower is better)."""
    chosen: Mapping[str, float]
    """Held-out corpus → λ."""
    deployed: float
    """Of the readout that is fitted to everything."""

    @property
    def at_edge(self) -> bool:
        """The deployed λ is the least or greatest tried: a wider range might serve better."""
        return self.deployed in (float(self.penalties[0]), float(self.penalties[-1]))


def nested_folds(corpora: Sequence[str]) -> list[tuple[str, str, list[str]]]:
    """(held-out corpus, the next in cyclic order, which validates, and the others, which fit) for each."""
    pairs = zip(corpora, [*corpora[1:], corpora[0]], strict=True)
    return [(*pair, [name for name in corpora if name not in pair]) for pair in pairs]


def choose_penalty(corpora: Mapping[str, CenteredMoments], penalties: Floats = PENALTIES) -> PenaltyChoice:
    """The teacher's rule: in each fold the λ of least held-out centered error, eq. 8 without the penalty."""
    errors = {}
    for held_out, validation, fitted in nested_folds(list(corpora)):
        path = ridge_path(merge_moments(corpora, fitted), penalties)
        errors[held_out] = corpora[validation].squared_error(path)
    return deploy_modal(penalties, errors)


def choose_penalty_of_few(
    parts: Mapping[str, CenteredMoments], penalties: Floats = PENALTIES
) -> PenaltyChoice:
    """For few lists: λ of least error summed over all parts, each left out of its own choice."""

    def fit_without(*left_out: str) -> Floats:
        return ridge_path(merge_moments(parts, [name for name in parts if name not in left_out]), penalties)

    errors = {name: np.zeros(len(penalties)) for name in parts}
    for one, other in combinations(parts, 2):
        path = fit_without(one, other)
        errors[one] += parts[other].squared_error(path)
        errors[other] += parts[one].squared_error(path)
    total = sum(parts[name].squared_error(fit_without(name)) for name in parts)
    return PenaltyChoice(
        penalties,
        errors,
        chosen={name: _least(penalties, of_part) for name, of_part in errors.items()},
        deployed=_least(penalties, np.asarray(total)),
    )


def deploy_modal(penalties: Floats, errors: Mapping[str, Floats]) -> PenaltyChoice:
    """Pick λ of least error in each fold, then the modal one across folds, of ties the largest."""
    chosen = {corpus: _least(penalties, fold_errors) for corpus, fold_errors in errors.items()}
    counts = Counter(chosen.values())
    deployed = max(counts, key=lambda penalty: (counts[penalty], penalty))
    return PenaltyChoice(penalties, errors, chosen, deployed)


def _least(penalties: Floats, errors: Floats) -> float:
    """The λ of least error, of ties the larger."""
    return float(penalties[len(penalties) - 1 - int(np.argmin(errors[::-1]))])


@dataclass(frozen=True, slots=True, eq=False)
class Readout:
    """a of eq. 5, (dim,), fitted at λ: the score of a state h is a'h."""

    vector: Floats
    penalty: float
    lineage: Lineage

    def score(self, states: Floats) -> Floats:
        """S = a'h, eq. 5: (K, dim) → (K,)."""
        return states @ self.vector


@dataclass(frozen=True, slots=True, eq=False)
class TargetReadout:
    """t̂ = v'h + intercept, v of (dim,), fitted at λ."""

    vector: Floats
    intercept: float
    penalty: float

    def predict(self, states: Floats) -> Floats:
        """(K, dim) → (K,): the target each page would get at full depth."""
        return states @ self.vector + self.intercept


def fit_target_readouts(
    within: Mapping[str, CenteredMoments],
    *,
    mean_states: Floats,
    mean_targets: Floats,
    folds: Sequence[str],
    members: float,
) -> tuple[TargetReadout, dict[str, TargetReadout]]:
    """The readout of all lists, and for each fold the one fitted on the others, at a λ chosen without it.

    Moments are those `within` the lists of each fold, and those of its lists' means: (lists, dim) states and
    (lists,) targets, with the fold of each list. Every list's mean counts as often as a list has `members` on
    average.
    """
    scale, fold_names = np.sqrt(members), np.array(folds, dtype=object)
    total: dict[str, CenteredMoments] = {}
    for fold, moments in within.items():
        between = CenteredMoments(moments.dim)
        lists = fold_names == fold
        between.add(scale * mean_states[lists], scale * mean_targets[lists])
        total[fold] = merge_moments({"within": moments, "between": between}, ["within", "between"])
    penalty = choose_penalty(total)

    def fit(names: Sequence[str], chosen: float) -> TargetReadout:
        [vector] = ridge_path(merge_moments(total, names), np.array([chosen]))
        lists = np.isin(fold_names, names)
        intercept = float((mean_targets[lists] - mean_states[lists] @ vector).mean())
        return TargetReadout(vector, intercept, chosen)

    held_out = {fold: fit([name for name in total if name != fold], penalty.chosen[fold]) for fold in total}
    return fit(list(total), penalty.deployed), held_out
