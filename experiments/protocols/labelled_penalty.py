"""λ chosen by relevance judgements: the rule the paper compares its label-free one with (§B.4)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ridgerank.evaluation.metrics import evaluate
from ridgerank.fusion.join import JoinedRuns
from ridgerank.fusion.standardize import fuse
from ridgerank.ragged import Floats
from ridgerank.readout.moments import CenteredMoments
from ridgerank.readout.penalty import PenaltyChoice, deploy_modal, merge_moments, nested_folds
from ridgerank.readout.ridge import PENALTIES, ridge_path
from ridgerank.runs.run import Qrels


@dataclass(frozen=True, slots=True, eq=False)
class LabelledCorpus:
    """A calibration corpus with judgements, and the state of every page its retriever returned."""

    retriever: JoinedRuns
    """One run."""
    states: Floats
    """(members, dim), in the order of `retriever`."""
    qrels: Qrels
    moments: CenteredMoments


def choose_penalty_by_relevance(
    corpora: Mapping[str, LabelledCorpus], *, weight: float, penalties: Floats = PENALTIES
) -> PenaltyChoice:
    """In each fold the λ whose fused ranking has the highest NDCG@5 on the validation corpus."""
    lambdas = np.sort(np.asarray(penalties, dtype=np.float64))
    moments = {name: corpus.moments for name, corpus in corpora.items()}
    losses = {}
    for fold in nested_folds(list(corpora)):
        path = ridge_path(merge_moments(moments, fold.fitted), lambdas)
        losses[fold.held_out] = -_quality(corpora[fold.validation], path, weight)
    return deploy_modal(lambdas, losses)


def _quality(corpus: LabelledCorpus, readouts: Floats, weight: float) -> Floats:
    """NDCG@5 of the fused ranking for each readout: (readouts, dim) → (readouts,)."""
    joined = corpus.retriever
    scores = readouts @ corpus.states.T
    runs = (joined.run(fuse(joined.scores[0], row, weight, joined.lists)) for row in scores)
    return np.array([evaluate(run, corpus.qrels, ("nDCG@5",)).means()["nDCG@5"] for run in runs])
