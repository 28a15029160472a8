"""What an artifact was made with, so that it is never read under anything else.

A prefix stored by one model means nothing to another, nor to the same model under another prompt,
exit layer or release of transformers. The store and the readout both carry a `Lineage`. Code that reads one
of them compares its lineage with that of the loaded model and refuses a difference. This module knows no
model.
"""

import hashlib
import json
from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Self, get_type_hints

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
    """Fingerprint of the image processor's and tokenizer's settings."""
    prompt: str
    """Fingerprint of the prompt, page part and query part."""
    exit_layer: int
    """ℓ: layers [0, ℓ) are stored, and the state is read after layer ℓ − 1."""
    keep: str
    """How visual positions were chosen, and which fraction γ of them."""
    quantization: str
    """How keys and values became bytes."""
    max_pixels: int | None = None
    """The pixel budget of a page image, None where the model reads text."""
    page_text: str | None = None
    """How much of a page's text is read (`head 512`, in tokens), None where the model reads images."""
    prompt_name: str | None = None
    """The name of the prompt, where the family has several."""
    key_bits: int = 8
    value_bits: int = 8
    number_group: int | None = None
    """How many numbers of a key channel or of a value share a step, None where all do."""

    def to_json(self) -> str:
        """One line of JSON, keys sorted, so that equal lineages give equal text."""
        return to_json_line(self)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote; other fields are an error."""
        try:
            stored = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ArtifactError(f"a lineage that is damaged ({error}); make the artifact again") from error
        names = {field.name for field in fields(cls)}
        if not isinstance(stored, dict) or set(stored) != names:
            stored_names = sorted(stored) if isinstance(stored, dict) else type(stored).__name__
            raise ArtifactError(
                f"lineage with fields {stored_names}, wanted {sorted(names)}: "
                "written by another version of ridgerank; make the artifact again"
            )
        lineage = cls(**stored)
        _require_types(lineage)
        return lineage

    def require(self, expected: "Lineage", *, artifact: str) -> None:
        """Raise `LineageMismatch`, showing both values of every field that differs from `expected`.

        The name a model was loaded by does not count: a folder may move, and its weights are compared.
        """
        differences = list_differences(self, expected, ignored=("backbone", *_FINGERPRINTS))
        if shown := "; ".join([*_describe_model(self, expected), *differences]):
            raise LineageMismatch(
                f"{artifact} was made with another lineage ({shown}); "
                "use the settings it was made with, or make it again with these"
            )

    def teacher_fingerprint(self) -> str:
        """Digest of what full-depth targets depend on: the model and what it reads, not the storage."""
        names = ("family", "weights", "transformers", "processor", "prompt", "max_pixels", "page_text")
        return fingerprint({name: getattr(self, name) for name in names})


def _require_types(lineage: Lineage) -> None:
    """Refuse values of other types than the fields have: JSON that was altered still reads."""
    hints = get_type_hints(Lineage)
    for name, value in asdict(lineage).items():
        if not isinstance(value, hints[name]) or isinstance(value, bool):
            raise ArtifactError(f"a lineage whose {name} is {value!r}: damaged; make the artifact again")


def to_json_line(record: "DataclassInstance") -> str:
    """A record as one line of JSON, keys sorted."""
    return json.dumps(asdict(record), sort_keys=True, ensure_ascii=False)


def list_differences(
    stored: "DataclassInstance", expected: "DataclassInstance", *, ignored: Container[str]
) -> list[str]:
    """Both values of every field in which two records differ, except those `ignored`."""
    there, here = asdict(stored), asdict(expected)
    differing = (name for name in there if name not in ignored and there[name] != here[name])
    return [f"{name}: {there[name]!r} there, {here[name]!r} here" for name in differing]


_FINGERPRINTS = ("weights", "processor", "prompt")
"""Fields that mean nothing to people."""


def _describe_model(stored: Lineage, expected: Lineage) -> list[str]:
    """In which way the model is another one, in words; other weights bring their own tokenizer and prompt."""
    if stored.weights != expected.weights:
        if stored.backbone != expected.backbone:
            return [f"model: {stored.backbone!r} there, {expected.backbone!r} here"]
        return [f"model: {stored.backbone!r} with other weights, or in another dtype"]
    words = {"processor": "another tokenizer or image processor", "prompt": "another prompt"}
    return [f"{name}: {words[name]}" for name in words if getattr(stored, name) != getattr(expected, name)]


def fingerprint(parts: Mapping[str, object]) -> str:
    """A 128-bit digest, in hex, of settings that JSON can express."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
