"""How a run names a corpus: by its family and its position in the family's cycle."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, repr=False)
class CorpusKey:
    """A corpus of a run."""

    family: int
    number: int
    """Position in the cycle of the family."""

    def __repr__(self) -> str:
        # Markers in the work folder are named by digests of this text: changing it would discard them.
        return f"Site(family={self.family}, number={self.number})"
