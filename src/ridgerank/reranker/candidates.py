"""What is to be ranked: pages as users name them, and the list that is made of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import SupportsFloat, TypeAlias

import numpy as np

from ridgerank.errors import ScoreError, StoreError
from ridgerank.ragged import Floats, Ragged, finite_scores
from ridgerank.records import Candidate
from ridgerank.reranker.unstored import PageSource, UnstoredPage, UnstoredPages
from ridgerank.store.lance_dataset import shorten
from ridgerank.store.page_store import PageStore

CandidateLike: TypeAlias = Candidate | tuple[str, float] | str
"""A page by id or reference, with the retriever's score or without."""
Candidates: TypeAlias = Sequence[CandidateLike] | Mapping[str, float]
"""What `rank` takes: a list, or scores by page."""


@dataclass(frozen=True, slots=True, eq=False)
class CandidateList:
    """A query and its candidates: known pages, each once, with finite scores, best first, ties by id."""

    query: str
    page_ids: list[str]
    scores: Floats
    """The retriever's, (candidates,); zeros where the readout alone ranks."""
    weight: float
    scored: bool = True
    """Whether there are retriever scores at all."""
    unstored: dict[str, UnstoredPage] = field(default_factory=dict)
    """Pages that are in no store, by page id."""
    notes: list[str] = field(default_factory=list)
    retrieval_ms: float = 0.0

    def note_ties(self, readout_scores: Floats) -> list[str]:
        """Say where a score could not tell the candidates apart; `readout_scores` is (candidates,)."""
        if len(self.scores) == 1:
            return ["one candidate: there is nothing to rank"]
        notes = []
        if self.scored and self.scores.max() == self.scores.min():
            notes.append("the retriever's scores are all equal: the readout alone decides")
        if readout_scores.max() == readout_scores.min():
            notes.append("the readout's scores are all equal: the retriever alone decides")
        return notes


def separate_scores(candidates: Candidates) -> tuple[list[str], list[float] | None]:
    """Names and scores of candidates; the scores are None where candidates are bare names."""
    if isinstance(candidates, Mapping):
        candidates = list(candidates.items())
    if isinstance(candidates, str) or not isinstance(candidates, Sequence):
        raise ScoreError(
            f"candidates of type {type(candidates).__name__}, wanted a list of pages, of (page, score), or a "
            "dict of scores by page"
        )
    bare = [candidate for candidate in candidates if isinstance(candidate, str)]
    if bare and len(bare) < len(candidates):
        raise ScoreError(
            f"{len(bare)} of {len(candidates)} candidates have no score ({shorten(bare)}); give all, or none"
        )
    if bare or not candidates:
        return bare, None
    pairs = [_name_and_score(candidate) for candidate in candidates]
    scores = [score for _, score in pairs]
    finite_scores(scores, Ragged.of_lengths([len(scores)]), what="the candidates' scores")
    return [name for name, _ in pairs], scores


def _name_and_score(candidate: object) -> tuple[str, float]:
    """The parts of a candidate with a score; numbers of numpy and torch count as numbers, text does not."""
    if isinstance(candidate, Candidate):
        return candidate.page_id, float(candidate.score)
    if isinstance(candidate, tuple | list) and len(candidate) == 2:
        name, score = candidate
        if isinstance(name, str) and isinstance(score, SupportsFloat) and not isinstance(score, str):
            return name, float(score)
    raise ScoreError(f"a candidate {candidate!r}, wanted a page, or (page, score) with a number as score")


def resolve_names(
    names: Sequence[str], store: PageStore, unstored_pages: UnstoredPages, source: PageSource | None
) -> tuple[list[str], dict[str, UnstoredPage]]:
    """The page id of every name, and the pages among them that are in no store, encoded from `source`."""
    page_id_of = store.lookup_many(names)
    missing = [name for name in dict.fromkeys(names) if name not in page_id_of]
    unstored: dict[str, UnstoredPage] = {}
    if missing and source is not None:
        for name, page in unstored_pages.find(missing, source).items():
            page_id_of[name] = page.page_id
            if page.page_id not in store:
                unstored[page.page_id] = page
    unknown = [name for name in missing if name not in page_id_of]
    if unknown:
        tried = "" if source is None else ", nor where missing pages were to be found"
        raise StoreError(
            f"pages not in the page store at {store.uri}{tried}: {shorten(unknown)}; index them, "
            "leave them out, or have them encoded on the fly (encode_missing)"
        )
    return [page_id_of[name] for name in names], unstored


def keep_best_scores(page_ids: Sequence[str], scores: Sequence[float]) -> tuple[list[str], Floats]:
    """Each page once, at its highest score."""
    best: dict[str, float] = {}
    for page_id, score in zip(page_ids, scores, strict=True):
        best[page_id] = max(score, best.get(page_id, score))
    return list(best), np.array(list(best.values()), dtype=np.float64)


def sort_candidates(page_ids: Sequence[str], scores: Floats) -> tuple[list[str], Floats]:
    """Best first, ties by id: one order, because the last digits of a sum depend on it."""
    order = sorted(range(len(page_ids)), key=lambda row: (-scores[row], page_ids[row]))
    return [page_ids[row] for row in order], scores[order]
