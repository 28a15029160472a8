"""What is to be ranked: pages as users name them, and the list that is made of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ridgerank.errors import ScoreError
from ridgerank.ragged import Floats, Ragged, finite_scores
from ridgerank.ranking.unstored import UnstoredPage
from ridgerank.records import Candidate
from ridgerank.store.lance_dataset import named

CandidateLike: TypeAlias = Candidate | tuple[str, float] | str
"""A page by id or reference, with the retriever's score or without."""


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A query and its candidates, made one of a kind: pages found, scores finite, best first, ties by id."""

    query: str
    page_ids: list[str]
    scores: Floats
    """The retriever's, (candidates,); zeros where the readout alone ranks."""
    guests: dict[str, UnstoredPage]
    """Pages that are in no store, by page id."""
    weight: float
    scored: bool
    """Whether there are retriever scores at all."""
    notes: list[str]
    retrieval_ms: float

    def flat(self, readout: Floats) -> list[str]:
        """Say where a score could not tell the candidates apart; `readout` is (candidates,)."""
        if len(self.scores) == 1:
            return ["one candidate: there is nothing to rank"]
        notes = []
        if self.scored and self.scores.max() == self.scores.min():
            notes.append("the retriever's scores are all equal: the readout alone decides")
        if readout.max() == readout.min():
            notes.append("the readout's scores are all equal: the retriever alone decides")
        return notes


def names_and_scores(candidates: Sequence[CandidateLike]) -> tuple[list[str], list[float] | None]:
    """Names and scores; scores are None where candidates are bare names."""
    bare = [candidate for candidate in candidates if isinstance(candidate, str)]
    if bare and len(bare) < len(candidates):
        raise ScoreError(
            f"{len(bare)} of {len(candidates)} candidates have no score ({named(bare)}); give all, or none"
        )
    if bare or not candidates:
        return bare, None
    pairs = [
        (candidate.page_id, candidate.score) if isinstance(candidate, Candidate) else candidate
        for candidate in candidates
        if not isinstance(candidate, str)
    ]
    scores = [float(score) for _, score in pairs]
    finite_scores(scores, Ragged.of_lengths([len(scores)]), what="the candidates' scores")
    return [name for name, _ in pairs], scores
