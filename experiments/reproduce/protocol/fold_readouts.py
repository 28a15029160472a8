"""Four readouts a backbone: each fitted on the calibration queries of the other corpora (§4, §B.4)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from experiments.protocols.scored_corpus import Scored
from ridgerank.ragged import Floats
from ridgerank.readout.moments import CenteredMoments
from ridgerank.readout.penalty import PenaltyChoice, choose_penalty, merge_moments
from ridgerank.readout.ridge import ridge_path


@dataclass(frozen=True, slots=True, eq=False)
class Readouts:
    """The readouts of one backbone, in the order of the corpora each leaves out."""

    choice: PenaltyChoice
    """λ by the teacher's rule; the modal choice of the folds is what all readouts are fitted with."""
    vectors: Floats
    """(corpora, dim)."""


def moments_of(sample: Scored) -> CenteredMoments:
    """The sums that the fit needs of one corpus."""
    moments = CenteredMoments(sample.states.shape[1])
    offsets = sample.lists.offsets.tolist()
    for start, end in pairwise(offsets):
        moments.add(sample.states[start:end], sample.margins[start:end])
    return moments


def fit_readouts(samples: Sequence[Scored]) -> Readouts:
    """Leave each corpus out in turn, at the λ that most folds choose."""
    moments = {sample.corpus: moments_of(sample) for sample in samples}
    choice = choose_penalty(moments)
    return Readouts(choice, leave_one_out(moments, choice.deployed))


def leave_one_out(moments: dict[str, CenteredMoments], penalty: float) -> Floats:
    """(corpora, dim): for each corpus the readout fitted on all others."""
    penalties = np.array([penalty])
    fitted = [
        ridge_path(merge_moments(moments, [name for name in moments if name != left_out]), penalties)[0]
        for left_out in moments
    ]
    return np.stack(fitted)


def readouts_for(family: int, number: int, corpora: int) -> tuple[int, ...]:
    """Which readouts score a corpus: of the calibrating family the one that left it out, else all of them."""
    return (number,) if family == 0 else tuple(range(corpora))
