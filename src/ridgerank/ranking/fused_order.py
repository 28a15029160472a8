"""From two scores per candidate to the final order, each page with what put it there (eq. 1 and 2)."""

from collections.abc import Mapping

import numpy as np

from ridgerank.calibration.relevance_model import Assessment
from ridgerank.fusion.standardize import standardize
from ridgerank.ragged import Floats, Ragged
from ridgerank.ranking.candidates import CandidateList
from ridgerank.records import RankedPage


def order_pages(
    candidates: CandidateList,
    readout_scores: Floats,
    references: Mapping[str, str],
    assessment: Assessment | None = None,
) -> list[RankedPage]:
    """Pages by fused score, best first; a tie goes to the retriever's order."""
    probabilities = None if assessment is None else assessment.pages
    lists = Ragged.of_lengths([len(readout_scores)])
    retriever_ranks = lists.ranks(candidates.scores)
    retriever_z, readout_z = standardize(candidates.scores, lists), standardize(readout_scores, lists)
    retriever_parts, readout_parts = (1.0 - candidates.weight) * retriever_z, candidates.weight * readout_z
    fused_scores = retriever_parts + readout_parts
    order = np.lexsort((retriever_ranks, -fused_scores)).tolist()
    return [
        RankedPage(
            page_id=candidates.page_ids[row],
            reference=references[candidates.page_ids[row]],
            fused_score=float(fused_scores[row]),
            retriever_score=float(candidates.scores[row]),
            readout_score=float(readout_scores[row]),
            retriever_z=float(retriever_z[row]),
            readout_z=float(readout_z[row]),
            retriever_part=float(retriever_parts[row]),
            readout_part=float(readout_parts[row]),
            rank=rank,
            retriever_rank=int(retriever_ranks[row]),
            probability=None if probabilities is None else probabilities[row],
            predicted_target=None if assessment is None else assessment.predicted[row],
        )
        for rank, row in enumerate(order, start=1)
    ]
