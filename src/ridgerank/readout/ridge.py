"""The ridge: its solution, the choice of its penalty, and the readouts that are fitted with it. Pure.

The readout of eq. 8 is fitted on centered lists. What a query adds to all of its candidates is gone then, and
two queries' scores cannot be compared. `TargetReadout` is fitted to the lists' means as well: moments within
lists and moments between them, with the same ridge and the same choice of λ, so that it predicts the target
itself.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np

from ridgerank.errors import CalibrationError
from ridgerank.lineage import Lineage
from ridgerank.ragged import Floats
from ridgerank.readout.moments import CenteredMoments, Rows

PENALTIES: Floats = np.logspace(-3, 6, 10)
"""λ from 10⁻³ to 10⁶; the paper's choices, 10¹ to 10⁴, lie inside."""
_NEAR_ROUNDING = 1e4
"""Times the rounding of G: above it Cholesky is right to five digits even where G lacks full rank."""


def ridge_path(moments: CenteredMoments, penalties: Floats = PENALTIES) -> Floats:
    """a = (H_c'H_c + λI)⁻¹ H_c't_c for every λ: (penalties, dim).

    With fewer contrasts than dimensions the dual form H_c'(H_c H_c' + λI)⁻¹ t_c gives the same vectors.
    """
    lambdas = np.asarray(penalties, dtype=np.float64)
    if lambdas.ndim != 1 or not len(lambdas) or not ((lambdas > 0) & np.isfinite(lambdas)).all():
        raise CalibrationError(f"penalties {penalties}, expected at least one, all positive and finite")
    if moments.target_square == 0.0:
        raise CalibrationError(
            f"the targets of all {moments.lists} lists are constant within their list: "
            "there is no order to learn; expected lists in which the full model tells pages apart"
        )
    problem = moments.problem()
    if isinstance(problem, Rows):
        H = problem.states
        return _solve_path(H @ H.T, problem.targets, lambdas, lambda x: H @ (H.T @ x)) @ H
    return _solve_path(problem.gram, problem.moment, lambdas, lambda x: problem.gram @ x)


def _solve_path(
    gram: Floats, right: Floats, penalties: Floats, multiply: Callable[[Floats], Floats]
) -> Floats:
    """x of (G + λI) x = r for every λ: (n, n), (n,), (penalties,) → (penalties, n).

    `multiply` is x ↦ G x for one step of refinement. From rows it goes through H, which has digits that HH'
    has lost: where eigenvalues are 10⁸ apart, the step brings the error from 10⁻⁷ to 10⁻¹¹.
    """
    solutions = []
    for penalty, inverse in zip(penalties, _inverses(gram, penalties), strict=True):
        x = inverse(right)
        solutions.append(x + inverse(right - penalty * x - multiply(x)))
    return np.array(solutions)


def _inverses(gram: Floats, penalties: Floats) -> Iterator[Callable[[Floats], Floats]]:
    """(G + λI)⁻¹ for every λ: by Cholesky, or by eigenvectors where λ is near the rounding of G.

    Eigenvalues that are only rounding are left out then: λ → 0 is the least-squares solution of least norm.
    """
    # Here, so that only those who solve pay for loading scipy.linalg.
    from scipy.linalg import cho_factor, cho_solve, eigh

    rounding = np.finfo(np.float64).eps * np.trace(gram)
    near_rounding = penalties <= _NEAR_ROUNDING * rounding
    if near_rounding.any():
        values, vectors = eigh(gram)
        kept = values > rounding
        values, vectors = values[kept], vectors[:, kept]
    for penalty, use_eigenvectors in zip(penalties, near_rounding, strict=True):
        if use_eigenvectors:
            yield partial(_solve_by_eigenvectors, values + penalty, vectors)
        else:
            shifted = np.array(gram, order="F")
            shifted[np.diag_indices(len(gram))] += penalty
            yield partial(cho_solve, cho_factor(shifted, lower=True, overwrite_a=True))


def _solve_by_eigenvectors(values: Floats, vectors: Floats, right: Floats) -> Floats:
    solution: Floats = vectors @ (vectors.T @ right / values)
    return solution


@dataclass(frozen=True, slots=True, eq=False)
class PenaltyChoice:
    """The λ a rule picked in each fold and the one it deploys."""

    penalties: Floats
    """The λ tried, ascending."""
    errors: Mapping[str, Floats]
    """Held-out corpus → error on its validation corpora at each λ (lower is better)."""
    chosen: Mapping[str, float]
    """Held-out corpus → the λ its fold picked."""
    deployed: float
    """The λ for the readout that is fitted to everything."""

    @property
    def at_edge(self) -> bool:
        """The deployed λ is the least or greatest tried: a wider range might serve better."""
        return self.deployed in (float(self.penalties[0]), float(self.penalties[-1]))


def nested_folds(corpora: Sequence[str]) -> list[tuple[str, str, list[str]]]:
    """(held-out corpus, the next in cyclic order, which validates, and the others, which fit) for each."""
    if len(corpora) < 3 or len(set(corpora)) != len(corpora):
        raise CalibrationError(
            f"{len(corpora)} corpora {list(corpora)}, expected at least three different ones "
            "(one held out, one to validate, one to fit); split the queries of one corpus into parts"
        )
    folds = []
    for number, held_out in enumerate(corpora):
        validation = corpora[(number + 1) % len(corpora)]
        fitted = [name for name in corpora if name not in (held_out, validation)]
        folds.append((held_out, validation, fitted))
    return folds


def choose_penalty(corpora: Mapping[str, CenteredMoments], penalties: Floats = PENALTIES) -> PenaltyChoice:
    """The teacher's rule: in each fold the λ of least held-out centered error, eq. 8 without the penalty."""
    lambdas = np.sort(np.asarray(penalties, dtype=np.float64))
    errors = {}
    for held_out, validation, fitted in nested_folds(list(corpora)):
        path = ridge_path(merge_moments(corpora, fitted), lambdas)
        errors[held_out] = corpora[validation].squared_error(path)
    return deploy_modal(lambdas, errors)


def choose_penalty_of_few(
    parts: Mapping[str, CenteredMoments], penalties: Floats = PENALTIES
) -> PenaltyChoice:
    """For parts of few lists: the λ of least error summed over all parts, each left out in turn.

    A held-out part has no say in its own λ: readouts are fitted without it and validated on every other part.
    """
    lambdas = np.sort(np.asarray(penalties, dtype=np.float64))
    names = list(parts)
    errors = {name: np.zeros(len(lambdas)) for name in names}
    for one, other in combinations(names, 2):
        path = _path_without(parts, (one, other), lambdas)
        errors[one] += parts[other].squared_error(path)
        errors[other] += parts[one].squared_error(path)
    total = sum(parts[name].squared_error(_path_without(parts, (name,), lambdas)) for name in names)
    return PenaltyChoice(
        lambdas,
        errors,
        chosen={name: _least(lambdas, of_part) for name, of_part in errors.items()},
        deployed=_least(lambdas, np.asarray(total)),
    )


def deploy_modal(penalties: Floats, errors: Mapping[str, Floats]) -> PenaltyChoice:
    """Pick λ of least error in each fold, then the modal one across folds.

    Of equally frequent ones it is the largest, which trusts the data least.
    """
    chosen = {corpus: _least(penalties, fold_errors) for corpus, fold_errors in errors.items()}
    counts = Counter(chosen.values())
    deployed = max(counts, key=lambda penalty: (counts[penalty], penalty))
    return PenaltyChoice(penalties, errors, chosen, deployed)


def _least(penalties: Floats, errors: Floats) -> float:
    """The λ of least error, of ties the larger."""
    return float(penalties[len(penalties) - 1 - int(np.argmin(errors[::-1]))])


def _path_without(parts: Mapping[str, CenteredMoments], left_out: Sequence[str], lambdas: Floats) -> Floats:
    return ridge_path(merge_moments(parts, [name for name in parts if name not in left_out]), lambdas)


def merge_moments(corpora: Mapping[str, CenteredMoments], names: Sequence[str]) -> CenteredMoments:
    """The moments of several corpora together; the originals stay as they are."""
    total = CenteredMoments(corpora[names[0]].dim)
    for name in names:
        total.merge(corpora[name])
    return total


@dataclass(frozen=True, slots=True, eq=False)
class Readout:
    """a of eq. 5: the score of a state h is a'h."""

    vector: Floats
    """(dim,)."""
    penalty: float
    """λ it was fitted with."""
    lists: int
    """Candidate lists it was fitted on."""
    pairs: int
    """Query-page pairs it was fitted on."""
    lineage: Lineage

    def score(self, states: Floats) -> Floats:
        """S = a'h, eq. 5: (K, dim) → (K,)."""
        return states @ self.vector


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
