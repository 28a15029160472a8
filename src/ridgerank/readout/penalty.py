"""The choice of λ without labels: centered squared error on held-out queries, nested by corpus (§B.4)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
    """Held-out corpus → error on its validation corpus at each λ (lower is better)."""
    chosen: Mapping[str, float]
    """Held-out corpus → the λ its fold picked."""
    deployed: float
    """The modal choice; of equally frequent ones the largest, which trusts the data least."""

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


def deploy_modal(penalties: Floats, errors: Mapping[str, Floats]) -> PenaltyChoice:
    """Pick λ of least error in each fold, ties to the larger, then the modal one across folds."""
    chosen = {
        corpus: float(penalties[len(penalties) - 1 - int(np.argmin(fold_errors[::-1]))])
        for corpus, fold_errors in errors.items()
    }
    counts = Counter(chosen.values())
    deployed = max(counts, key=lambda penalty: (counts[penalty], penalty))
    return PenaltyChoice(penalties, errors, chosen, deployed)


def merge_moments(corpora: Mapping[str, CenteredMoments], names: Sequence[str]) -> CenteredMoments:
    """The moments of several corpora together; the originals stay as they are."""
    total = CenteredMoments(corpora[names[0]].dim)
    for name in names:
        total.merge(corpora[name])
    return total
