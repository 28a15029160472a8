"""The readout as a small file: one vector, how it was fitted, and the lineage it is bound to."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from ridgerank.atomic import replacing
from ridgerank.errors import ArtifactError
from ridgerank.lineage import Lineage
from ridgerank.ragged import Floats

FORMAT = "ridgerank-readout-1"


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

    def save(self, path: Path) -> None:
        """Write as safetensors, lineage and fit as metadata; the file is whole or not there."""
        from safetensors.numpy import save

        fit = {"penalty": self.penalty, "lists": self.lists, "pairs": self.pairs}
        metadata = {"format": FORMAT, "fit": json.dumps(fit), "lineage": self.lineage.to_json()}
        with replacing(path) as scratch:
            scratch.write_bytes(save({"readout": self.vector}, metadata))

    @classmethod
    def load(cls, path: Path, *, lineage: Lineage | None = None) -> Self:
        """Read a readout; with `lineage` given, one made with another is refused."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                if metadata.get("format") != FORMAT:
                    raise ArtifactError(
                        f"{path}: format {metadata.get('format')!r}, wanted {FORMAT!r}; calibrate again"
                    )
                vector = np.asarray(file.get_tensor("readout"), dtype=np.float64)
        except FileNotFoundError as error:
            beside = sorted(other.name for other in path.parent.glob(f"*{path.suffix}"))
            raise ArtifactError(f"{path}: no such readout; there are {beside or 'none'} beside it") from error
        except SafetensorError as error:
            raise ArtifactError(
                f"{path}: not a readable safetensors file ({error}); calibrate again"
            ) from error
        readout = cls(
            vector=vector, lineage=Lineage.from_json(metadata["lineage"]), **json.loads(metadata["fit"])
        )
        if lineage is not None:
            readout.lineage.require(lineage, artifact=f"readout {path.name}")
        return readout
