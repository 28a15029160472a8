"""Leave one corpus out (§4, §B.4): each corpus gets a readout fitted on the queries of the others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from experiments.protocols.scored_corpus import ScoredCorpus
from ridgerank.ragged import Floats
from ridgerank.readout.moments import CenteredMoments
from ridgerank.readout.ridge import PenaltyChoice, choose_penalty, merge_moments, ridge_path


@dataclass(frozen=True, slots=True, eq=False)
class FoldReadouts:
    """The readouts of one backbone, in the order of the corpora each leaves out."""

    choice: PenaltyChoice
    """λ by the teacher's rule: in each fold, and the modal one that is deployed."""
    vectors: Floats
    """(corpora, dim)."""


def corpus_moments(sample: ScoredCorpus) -> CenteredMoments:
    """The sums that the fit needs of one corpus."""
    moments = CenteredMoments(sample.states.shape[1])
    for start, end in pairwise(sample.lists.offsets.tolist()):
        moments.add(sample.states[start:end], sample.margins[start:end])
    return moments


def fit_fold_readouts(samples: Sequence[ScoredCorpus]) -> FoldReadouts:
    """Leave each corpus out in turn, all at the λ that most folds choose."""
    moments = {sample.corpus: corpus_moments(sample) for sample in samples}
    choice = choose_penalty(moments)
    return FoldReadouts(choice, fit_without_each(moments, dict.fromkeys(moments, choice.deployed)))


def fit_without_each(moments: Mapping[str, CenteredMoments], penalties: Mapping[str, float]) -> Floats:
    """(corpora, dim): for each corpus the readout fitted on all others, at the λ given for that corpus."""
    fitted = [
        ridge_path(
            merge_moments(moments, [name for name in moments if name != left_out]),
            np.array([penalties[left_out]]),
        )[0]
        for left_out in moments
    ]
    return np.stack(fitted)


def readouts_for(family: int, number: int, corpora: int) -> tuple[int, ...]:
    """Which readouts score a corpus: of the calibrating family the one that left it out, else all of them."""
    return (number,) if family == 0 else tuple(range(corpora))
