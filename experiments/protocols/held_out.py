"""Corpora ranked with readouts and weights that never saw them, when all their queries calibrate (§4).

Every readout score in here is of a corpus that its readout was not fitted on, also where a weight is read.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.protocols.cyclic_weights import cyclic_weights
from experiments.protocols.leave_one_out import corpus_moments, fit_without_each
from experiments.protocols.scored_corpus import ScoredCorpus
from ridgerank.fusion.correlations import correlate, correlation
from ridgerank.fusion.weight import WeightEstimate, label_free_estimate
from ridgerank.ragged import Floats
from ridgerank.readout.ridge import PenaltyChoice, choose_penalty


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutCorpus:
    """One corpus under a readout that never saw it."""

    scored: ScoredCorpus
    readout_scores: Floats
    agreement: float
    """r: mean correlation of readout and margin."""
    weight: float
    """w* read on the next corpus, with its judgements."""
    label_free: WeightEstimate
    """Read on this corpus, without any judgement; the margin is the third score."""
    teacher_weight: float
    """w* of the full cross encoder, read on the next corpus."""

    def ndcg_by_method(self) -> dict[str, Floats]:
        """Method → (queries,) nDCG@5 in percent."""
        scored = self.scored
        return {
            "retriever": scored.ndcg(scored.retriever),
            "cross encoder": scored.ndcg(scored.margins),
            "cross encoder, fused": scored.fused_ndcg(scored.margins, self.teacher_weight),
            "logit lens": scored.ndcg(scored.lens),
            "readout": scored.ndcg(self.readout_scores),
            "ridgerank": scored.fused_ndcg(self.readout_scores, self.weight),
            "ridgerank, label free": scored.fused_ndcg(self.readout_scores, self.label_free.weight),
        }


def hold_out_each(corpora: Sequence[ScoredCorpus]) -> tuple[list[HeldOutCorpus], PenaltyChoice]:
    """Evaluate every corpus with a readout fitted on the others, at the λ that its fold chose (§B.4).

    The modal λ of all folds, which a user deploys, has seen every corpus.
    """
    moments = {scored.corpus: corpus_moments(scored) for scored in corpora}
    choice = choose_penalty(moments)
    vectors = fit_without_each(moments, choice.chosen)
    scores = [scored.states @ vector for scored, vector in zip(corpora, vectors, strict=True)]
    weights = cyclic_weights(corpora, scores)
    teacher_weights = cyclic_weights(corpora, [scored.margins for scored in corpora])
    held_out = [
        HeldOutCorpus(
            scored=scored,
            readout_scores=readout_scores,
            agreement=float(correlation(readout_scores, scored.margins, scored.lists).mean()),
            weight=weight,
            label_free=label_free_estimate(
                correlate(scored.retriever, readout_scores, scored.margins, scored.lists)
            ),
            teacher_weight=teacher_weight,
        )
        for scored, readout_scores, weight, teacher_weight in zip(
            corpora, scores, weights, teacher_weights, strict=True
        )
    ]
    return held_out, choice
