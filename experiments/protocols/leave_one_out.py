"""Leave one corpus out (§4): readouts fitted on the others, weights read on the next one in a fixed cycle.

Every readout score in here is of a corpus that its readout was not fitted on, also where a weight is read.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.protocols.scored_corpus import Scored, next_in_cycle
from ridgerank.calibration.ridge_fit import RidgeProblem, fit_readout
from ridgerank.fusion.correlations import correlate, correlation
from ridgerank.fusion.estimate import WeightEstimate, closed_form_estimate, label_free_estimate
from ridgerank.fusion.standardize import fuse
from ridgerank.ragged import Floats, Ragged
from ridgerank.readout.penalty import PenaltyChoice


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """One corpus under a readout that never saw it."""

    scored: Scored
    readout_scores: Floats
    agreement: float
    """r: mean correlation of readout and margin."""
    weight: WeightEstimate
    """w* read on the next corpus, with its judgements."""
    label_free: WeightEstimate
    """Read on this corpus, without any judgement; the margin is the third score."""
    teacher_weight: WeightEstimate
    """w* of the full cross encoder, read on the next corpus."""

    def arms(self) -> dict[str, Floats]:
        """Arm → (queries,) nDCG@5 in percent."""
        scored = self.scored

        def fused(scores: Floats, weight: WeightEstimate) -> Floats:
            return scored.ndcg(fuse(scored.retriever, scores, weight.weight, scored.lists))

        return {
            "retriever": scored.ndcg(scored.retriever),
            "cross encoder": scored.ndcg(scored.margins),
            "cross encoder, fused": fused(scored.margins, self.teacher_weight),
            "logit lens": scored.ndcg(scored.lens),
            "readout": scored.ndcg(self.readout_scores),
            "ridgerank": fused(self.readout_scores, self.weight),
            "ridgerank, label free": fused(self.readout_scores, self.label_free),
        }


def leave_one_out(corpora: Sequence[Scored]) -> tuple[list[HeldOut], PenaltyChoice]:
    """Evaluate every corpus with a readout fitted on the others, at the λ its own fold picked (§B.4).

    The modal λ of all folds, which a user deploys, has seen every corpus.
    """
    fitted = fit_readout(
        RidgeProblem(
            lists=Ragged.of_lengths(np.concatenate([scored.lists.lengths for scored in corpora]).tolist()),
            corpora=tuple(scored.corpus for scored in corpora for _ in scored.queries),
            retriever=np.concatenate([scored.retriever for scored in corpora]),
            targets=np.concatenate([scored.margins for scored in corpora]),
            states=np.concatenate([scored.states for scored in corpora]),
        )
    )
    ends = np.cumsum([scored.lists.members for scored in corpora])
    scores = np.split(fitted.held_out_scores, ends[:-1])
    return [_held_out(number, corpora, scores) for number in range(len(corpora))], fitted.penalty


def recovery(retriever: float, ridgerank: float, cross_encoder: float) -> float:
    """The share of the cross encoder's gain over the retriever that is kept, in percent."""
    return 100.0 * (ridgerank - retriever) / (cross_encoder - retriever)


def _held_out(number: int, corpora: Sequence[Scored], scores: Sequence[Floats]) -> HeldOut:
    scored, own = corpora[number], scores[number]
    following, theirs = next_in_cycle(corpora, number), next_in_cycle(scores, number)

    def weight(reranker: Floats) -> WeightEstimate:
        relevance = following.relevance
        return closed_form_estimate(correlate(following.retriever, reranker, relevance, following.lists))

    return HeldOut(
        scored=scored,
        readout_scores=own,
        agreement=float(correlation(own, scored.margins, scored.lists).mean()),
        weight=weight(theirs),
        label_free=label_free_estimate(correlate(scored.retriever, own, scored.margins, scored.lists)),
        teacher_weight=weight(following.margins),
    )
