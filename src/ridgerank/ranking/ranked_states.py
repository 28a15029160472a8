"""From the states of one list's candidates to its ranking: read out, fuse, sort, say what is to be known."""

import time

from ridgerank.calibration.artifact import Calibration
from ridgerank.fusion.estimate import WeightEstimate
from ridgerank.ranking.batching import ListStates
from ridgerank.ranking.candidates import CandidateList
from ridgerank.ranking.fused_order import order_pages
from ridgerank.records import AnswerProbability, Latency, Ranking
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
    relevance = calibration.relevance
    assessment = None if relevance is None else relevance.assess(list_states.states)
    pages = order_pages(candidates, readout_scores, _name_pages(candidates, store), assessment)
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
    answered = AnswerProbability() if assessment is None else assessment.answered
    return Ranking(candidates.query, tuple(pages), candidates.weight, latency, "; ".join(notes), answered)


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
