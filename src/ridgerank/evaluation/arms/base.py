"""An arm: a score for every candidate of a query."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ridgerank.lists import Floats
from ridgerank.records import Candidate


class Arm(ABC):
    """Scores candidates of one corpus; higher is more relevant, scores compare within a query only."""

    name: str
    """As tables print it."""

    @abstractmethod
    def score(self, query: str, candidates: Sequence[Candidate]) -> Floats:
        """(candidates,) in the order given."""
