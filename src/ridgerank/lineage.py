"""What an artifact was made with, so that it is never read under anything else.

A prefix stored by one model means nothing to another, nor to the same model under another prompt,
exit layer or release of transformers. The store and the readout both carry a `Lineage`; whoever reads
one compares it with the lineage at hand and refuses a difference. This module knows no model.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Self

from ridgerank.errors import ArtifactError, LineageMismatch

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True, slots=True)
class Lineage:
    """Everything that decides what a page's prefix and a query's state mean."""

    backbone: str
    """The name or folder the model was loaded from, to load it again. Not compared: the weights are."""
    family: str
    """The model's type, as transformers calls it."""
    weights: str
    """Fingerprint of the weights."""
    transformers: str
    """Release of transformers; position ids of still images have changed between releases."""
    processor: str
    """Fingerprint of the image processor's and tokenizer's settings, and how much of a page is read."""
    prompt: str
    """Fingerprint of the prompt, page part and query part, and its name where it was one of several."""
    exit_layer: int
    """ℓ: layers [join_layer, exit_layer) are stored, and the state is read after layer ℓ − 1."""
    join_layer: int
    """m: below it the query runs alone; 0 is the paper."""
    keep: str
    """How visual positions were chosen, and which fraction γ of them."""
    quantization: str
    """How keys and values became bytes."""

    def to_json(self) -> str:
        """One line of JSON, keys sorted, so that equal lineages give equal text."""
        return one_line(self)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote; unknown or missing fields are an error that names them."""
        found = json.loads(text)
        wanted = {field.name for field in fields(cls)}
        if not isinstance(found, dict) or set(found) != wanted:
            names = sorted(found) if isinstance(found, dict) else type(found).__name__
            raise ArtifactError(
                f"lineage with fields {names}, wanted {sorted(wanted)}: "
                "written by another version of ridgerank; make the artifact again"
            )
        return cls(**found)

    def require(self, wanted: "Lineage", *, artifact: str) -> None:
        """Raise `LineageMismatch`, showing both values of every field that differs from `wanted`.

        The name a model was loaded by does not count: a folder may move, and its weights are compared.
        """
        if shown := differences(self, wanted, apart_from="backbone"):
            raise LineageMismatch(
                f"{artifact} was made with another lineage ({shown}); "
                "use the settings it was made with, or make it again with these"
            )


def one_line(record: "DataclassInstance") -> str:
    """A record as one line of JSON, keys sorted."""
    return json.dumps(asdict(record), sort_keys=True, ensure_ascii=False)


def differences(held: "DataclassInstance", wanted: "DataclassInstance", *, apart_from: str) -> str:
    """Both values of every field in which two records differ, but for one; empty where none does."""
    there, here = asdict(held), asdict(wanted)
    differing = (name for name in there if name != apart_from and there[name] != here[name])
    return "; ".join(f"{name}: {there[name]!r} there, {here[name]!r} here" for name in differing)


def fingerprint(parts: Mapping[str, object]) -> str:
    """A 128-bit digest, in hex, of settings that JSON can express."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
