"""The readout: one vector, how it was fitted, and the lineage it is bound to."""

from dataclasses import dataclass

from ridgerank.lineage import Lineage
from ridgerank.ragged import Floats


@dataclass(frozen=True, slots=True, eq=False)
class Readout:
    """a of eq. 5: the score of a state h is a'h."""

    vector: Floats
    """(dim,)."""
    penalty: float
    """λ it was fitted with."""
    lists: int
    """Candidate lists it was fitted on."""
    pairs: int
    """Query-page pairs it was fitted on."""
    lineage: Lineage

    def score(self, states: Floats) -> Floats:
        """S = a'h, eq. 5: (K, dim) → (K,)."""
        return states @ self.vector
