"""A baseline: a score for every candidate of a query."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ridgerank.ragged import Floats
from ridgerank.records import Candidate


class Baseline(ABC):
    """Scores candidates of one corpus; higher is more relevant, scores compare within a query only."""

    name: str
    """As tables print it."""

    @abstractmethod
    def score(self, query: str, candidates: Sequence[Candidate]) -> Floats:
        """(candidates,) in the order given."""

    def score_many(self, candidates_of: Mapping[str, Sequence[Candidate]]) -> dict[str, Floats]:
        """Score candidates of many queries, by query text; some baselines read each page once for all."""
        return {query: self.score(query, candidates) for query, candidates in candidates_of.items()}


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A baseline that cannot run here: its row of the table says why."""

    name: str
    why: str
