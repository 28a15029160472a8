"""From the states of one list's candidates to its ranking: read out, fuse (eq. 1 and 2), sort, score."""

import time
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from scipy.special import expit

from ridgerank.calibration.artifact import Calibration
from ridgerank.errors import ScoreError
from ridgerank.fusion.standardize import standardize
from ridgerank.fusion.weight import WeightEstimate
from ridgerank.ragged import Floats, Ragged
from ridgerank.records import Latency, RankedPage, Ranking
from ridgerank.reranker.batching import ListStates
from ridgerank.reranker.candidates import CandidateList
from ridgerank.store.page_store import PageStore


def rank_states(
    candidates: CandidateList, list_states: ListStates | None, calibration: Calibration, store: PageStore
) -> Ranking:
    """All candidates, best first; an empty list has no states."""
    if list_states is None:
        latency = Latency(candidates.retrieval_ms, 0.0, 0.0, 0.0)
        note = "; ".join([*candidates.notes, "no candidates"])
        return Ranking(candidates.query, (), candidates.weight, latency, note=note)
    start = time.perf_counter()
    readout_scores = calibration.readout.score(list_states.states)
    predictor = calibration.target_readout
    predicted = None if predictor is None else predictor.predict(list_states.states)
    pages = order_pages(candidates, readout_scores, _name_pages(candidates, store), predicted)
    notes = [
        *_caution(calibration.weight, candidates.weight),
        *candidates.notes,
        *candidates.note_ties(readout_scores),
    ]
    latency = Latency(
        retrieval_ms=candidates.retrieval_ms,
        reading_ms=list_states.reading_ms,
        compute_ms=list_states.compute_ms,
        ranking_ms=1000 * (time.perf_counter() - start),
    )
    return Ranking(candidates.query, tuple(pages), candidates.weight, latency, "; ".join(notes))


def order_pages(
    candidates: CandidateList,
    readout_scores: Floats,
    references: Mapping[str, str],
    predicted_targets: Floats | None = None,
) -> list[RankedPage]:
    """Pages by fused score, best first; a tie goes to the retriever's order."""
    lists = Ragged.of_lengths([len(readout_scores)])
    retriever_ranks = lists.ranks(candidates.scores)
    retriever_z, readout_z = standardize(candidates.scores, lists), standardize(readout_scores, lists)
    retriever_parts, readout_parts = (1.0 - candidates.weight) * retriever_z, candidates.weight * readout_z
    fused_scores = retriever_parts + readout_parts
    order = np.lexsort((retriever_ranks, -fused_scores))
    relevance = relevance_scores(fused_scores[order], predicted_targets)
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
            relevance_score=float(relevance[rank - 1]),
        )
        for rank, row in enumerate(order.tolist(), start=1)
    ]


def relevance_scores(fused_scores: Floats, predicted_margins: Floats | None) -> Floats:
    """(pages,) fused scores in descending order → (pages,) scores from 0 to 1 that never rise.

    With the margins (pages,) that the full model is predicted to give these pages, in any order,

        sigmoid(μ + σ F / σ_F),

    μ and σ the mean and the standard deviation of the margins, F a fused score and σ_F the standard deviation
    of the fused scores (sigmoid(μ) if σ_F = 0): the fused order at the level of the model's own odds of yes,
    so that lists of different queries can be compared. Without predicted margins the score says no more than
    the rank: (n − rank + 1) / (n + 1) in a list of n pages.
    """
    count = len(fused_scores)
    if predicted_margins is None:
        return (count - np.arange(count)) / (count + 1)
    spread = fused_scores.std()
    steps = fused_scores / spread if spread > 0 else np.zeros(count)
    scores: Floats = expit(predicted_margins.mean() + predicted_margins.std() * steps)
    return scores


def require_min_score(min_score: float | None, calibration: Calibration) -> None:
    """Refuse a `min_score` outside 0 to 1, or one that only a rank could be compared with."""
    if min_score is None:
        return
    if not isinstance(min_score, int | float) or not 0.0 <= min_score <= 1.0:
        raise ScoreError(f"min_score is {min_score!r}, expected a number from 0 to 1")
    if calibration.target_readout is None:
        raise ScoreError(
            "min_score needs relevance scores that can be compared across queries, and this calibration "
            f"predicts no margin (its target is the {calibration.target}), so its scores are only ranks; "
            "calibrate with the target margin, or leave min_score out"
        )


def drop_low_scores(ranking: Ranking, min_score: float | None) -> Ranking:
    """The ranking without pages whose relevance score is below `min_score`; the others keep their ranks."""
    if min_score is None or not ranking.pages:
        return ranking
    pages = tuple(page for page in ranking.pages if page.relevance_score >= min_score)
    if pages:
        return replace(ranking, pages=pages)
    best = ranking.pages[0].relevance_score
    lack = f"no page reaches min_score {min_score:g}: the best of {len(ranking.pages)} has {best:.2f}"
    return replace(ranking, pages=(), note="; ".join(note for note in (ranking.note, lack) if note))


def _caution(calibrated: WeightEstimate, weight: float) -> list[str]:
    """Why the calibrated weight is not an estimate, said with every ranking that uses it."""
    if not calibrated.cause or weight != calibrated.weight:
        return []
    order = "the pages are in the retriever's order" if weight == 0 else "the weight is a default"
    return [f"weight {weight:g}, {order}: {calibrated.cause}"]


def _name_pages(candidates: CandidateList, store: PageStore) -> dict[str, str]:
    """What each candidate is called, by page id."""
    stored = [page_id for page_id in candidates.page_ids if page_id not in candidates.unstored]
    references = dict(zip(stored, store.references(stored), strict=True))
    return references | {page_id: page.reference for page_id, page in candidates.unstored.items()}
