"""The choice of λ without labels: centered squared error on held-out queries, nested by corpus (§B.4).

Of few queries, one part is too small to choose by: there the errors of all parts are added up.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from ridgerank.errors import CalibrationError
from ridgerank.ragged import Floats
from ridgerank.readout.moments import CenteredMoments
from ridgerank.readout.ridge import PENALTIES, ridge_path


@dataclass(frozen=True, slots=True)
class Fold:
    """One outer fold: a corpus set aside, one that validates, the others that fit."""

    held_out: str
    validation: str
    fitted: tuple[str, ...]


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


def nested_folds(corpora: Sequence[str]) -> list[Fold]:
    """Every corpus held out once; the next in cyclic order validates, the rest fit."""
    if len(corpora) < 3 or len(set(corpora)) != len(corpora):
        raise CalibrationError(
            f"{len(corpora)} corpora {list(corpora)}, wanted at least three different ones "
            "(one held out, one to validate, one to fit); split the queries of one corpus into parts"
        )
    folds = []
    for number, held_out in enumerate(corpora):
        validation = corpora[(number + 1) % len(corpora)]
        fitted = tuple(name for name in corpora if name not in (held_out, validation))
        folds.append(Fold(held_out, validation, fitted))
    return folds


def choose_penalty(corpora: Mapping[str, CenteredMoments], penalties: Floats = PENALTIES) -> PenaltyChoice:
    """The teacher's rule: in each fold the λ of least held-out centered error, eq. 8 without the penalty."""
    lambdas = np.sort(np.asarray(penalties, dtype=np.float64))
    errors = {}
    for fold in nested_folds(list(corpora)):
        path = ridge_path(merge_moments(corpora, fold.fitted), lambdas)
        errors[fold.held_out] = corpora[fold.validation].squared_error(path)
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
