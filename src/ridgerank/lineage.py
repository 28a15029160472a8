"""How pages are stored, and what an artifact was made with, so that it is never read under anything else.

Every part of a `StorageSetting` prints and parses (`stride 1/3`, `4/2 group 32`), and that text is what a
lineage records. A prefix stored by one model means nothing to another, nor to the same model under another
prompt, exit layer or release of transformers. The store and the readout both carry a `Lineage`. Code that
reads one of them compares its lineage with that of the loaded model and refuses a difference. This module
knows no model, no array and no file.
"""

import hashlib
import json
import re
import shlex
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, Self, TypeAlias, get_args, get_type_hints

from ridgerank.errors import ArtifactError, LineageMismatch, StoreError

RULES = ("stride", "value-norm")
"""`stride` takes every (1/γ)-th position in raster order, as in the paper. `value-norm` takes those with the
longest value vectors: whatever attends to them, they move a state the most."""


@dataclass(frozen=True, slots=True)
class Keep:
    """A rule and a fraction: `Keep.parse("stride 1/3")`."""

    rule: str = "stride"
    fraction: Fraction = Fraction(1, 3)
    """γ, in (0, 1]."""

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise StoreError(f"unknown rule {self.rule!r} for kept positions, known: {', '.join(RULES)}")
        if not 0 < self.fraction <= 1:
            raise StoreError(
                f"a fraction {self.fraction} of the visual positions, expected above 0, at most 1"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` wrote: a rule, a space, a fraction (`1/3`, `0.25`, `1`)."""
        matched = re.fullmatch(r"([\w-]+) (\d+/[1-9]\d*|\d*\.?\d+)", text.strip())
        if matched is None:
            raise StoreError(f"kept positions spelled {text!r}, expected a rule and a fraction: 'stride 1/3'")
        return cls(matched[1], Fraction(matched[2]))

    def __str__(self) -> str:
        return f"{self.rule} {self.fraction}"

    def count(self, visual: int) -> int:
        """How many of `visual` positions are stored: round(γ n), at least one if there are any."""
        return min(visual, max(1, round(self.fraction * visual)))


WIDTHS = (8, 4, 3, 2)
"""Bits a number may take: those of a range from its smallest to its largest."""
VALUE_WIDTHS = (*WIDTHS, 1)
"""Bits a value may take. Keys are compared with queries and need to be told apart finer."""


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """Bits of keys and of values, and the size of the groups that share a step."""

    key_bits: int = 8
    value_bits: int = 8
    group: int | None = None
    """How many positions of a key channel, and how many channels of a value, share a step; None is all."""

    def __post_init__(self) -> None:
        if self.key_bits not in WIDTHS or self.value_bits not in VALUE_WIDTHS:
            raise StoreError(
                f"keys of {self.key_bits} bits and values of {self.value_bits}, expected keys of "
                f"{', '.join(map(str, WIDTHS))} and values of {', '.join(map(str, VALUE_WIDTHS))}"
            )
        if self.group is not None and not 8 <= self.group < 1 << 16:
            raise StoreError(f"groups of {self.group} numbers, expected 8 to 65535; 32 is usual")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` wrote: bits, or bits of keys and of values, then the size of groups if any."""
        matched = re.fullmatch(r"(\d)(?:/(\d))?(?: group (\d{1,9}))?", text.strip())
        if matched is None:
            raise StoreError(f"bits spelled {text!r}, expected '8', '4', '4/2' (keys/values) or '4 group 32'")
        keys, values, group = matched.groups()
        return cls(int(keys), int(values or keys), None if group is None else int(group))

    def __str__(self) -> str:
        bits = (
            str(self.key_bits) if self.key_bits == self.value_bits else f"{self.key_bits}/{self.value_bits}"
        )
        return bits if self.group is None else f"{bits} group {self.group}"

    @property
    def symmetric(self) -> bool:
        """Whether numbers are signed codes times a scale, as in the paper; all others have a minimum, too."""
        return (self.key_bits, self.value_bits, self.group) == (8, 8, None)

    @property
    def quantization(self) -> str:
        """What a lineage records of how keys and values became bytes."""
        if self.symmetric:
            return "int8, bfloat16 scale per key channel and value position"
        return "packed codes, bfloat16 step and minimum per group of a key channel or value position"

    def count_groups(self, size: int) -> int:
        """How many groups `size` numbers make; the last may be smaller."""
        return -(-size // self.group) if self.group is not None else 1


PAPER_NUMBERS = NumberFormat()
"""int8, symmetric: one scale per key channel and one per value position."""

_PAPER_EXIT_LAYER = 21

StoragePreset = Literal["small", "paper"]
"""Settings by name: `small` is the best measured for the kind of page a model reads (docs/storage.md)."""
STORAGE_PRESETS: tuple[StoragePreset, ...] = get_args(StoragePreset)


def parse_storage_preset(name: str) -> StoragePreset:
    """A preset by its name."""
    for preset in STORAGE_PRESETS:
        if name == preset:
            return preset
    raise StoreError(f"no preset called {name!r}; known: {', '.join(STORAGE_PRESETS)}")


def default_exit_layer(layers: int) -> int:
    """The paper's layer 21, or three quarters of a model that is less deep than the paper's two."""
    return min(_PAPER_EXIT_LAYER, max(1, round(0.75 * layers)))


@dataclass(frozen=True, slots=True)
class StorageSetting:
    """How a page is stored: `stride 1/3, 8 bits, exit 6`."""

    keep: Keep
    numbers: NumberFormat
    exit_layer: int
    """ℓ: layers [0, ℓ) are stored, and the state is read after layer ℓ − 1."""

    @classmethod
    def from_preset(
        cls,
        preset: StoragePreset,
        *,
        layers: int,
        reads_text: bool,
        keep: Keep | None = None,
        numbers: NumberFormat | None = None,
        exit_layer: int | None = None,
    ) -> Self:
        """The setting of this name for a model of so many layers; parts that are given replace its own."""
        if preset == "paper":
            named = cls(Keep(), PAPER_NUMBERS, default_exit_layer(layers))
        elif reads_text:
            named = cls(
                Keep("value-norm", Fraction(1, 2)), NumberFormat(4, 2, 32), max(1, round(0.4 * layers))
            )
        else:
            named = cls(Keep("value-norm", Fraction(1, 5)), NumberFormat(3, 2), default_exit_layer(layers))
        return cls(
            keep or named.keep,
            numbers or named.numbers,
            named.exit_layer if exit_layer is None else exit_layer,
        )

    def command_options(self) -> str:
        """As one would type it for `ridgerank index`."""
        parts = {"--keep": self.keep, "--bits": self.numbers, "--exit-layer": self.exit_layer}
        return " ".join(f"{option} {shlex.quote(str(part))}" for option, part in parts.items())

    def __str__(self) -> str:
        return f"{self.keep}, {self.numbers} bits, exit {self.exit_layer}"


StorageChoice: TypeAlias = Callable[..., StorageSetting]
"""`partial` of `StorageSetting.from_preset`: called with `layers` and `reads_text` once a model is loaded."""


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
    storage: StorageSetting
    max_pixels: int | None = None
    """The pixel budget of a page image, None if the model reads text."""
    page_text: str | None = None
    """How much of a page's text is read (`head 512`, in tokens), None if the model reads images."""
    prompt_name: str | None = None
    """The name of the prompt, if the family has several."""

    def to_dict(self) -> dict[str, Any]:
        """All fields side by side, those of the storage setting as text and numbers."""
        storage, numbers = self.storage, self.storage.numbers
        return {
            "backbone": self.backbone,
            "family": self.family,
            "weights": self.weights,
            "transformers": self.transformers,
            "processor": self.processor,
            "prompt": self.prompt,
            "exit_layer": storage.exit_layer,
            "keep": str(storage.keep),
            "quantization": numbers.quantization,
            "max_pixels": self.max_pixels,
            "page_text": self.page_text,
            "prompt_name": self.prompt_name,
            "key_bits": numbers.key_bits,
            "value_bits": numbers.value_bits,
            "number_group": numbers.group,
        }

    def to_json(self) -> str:
        """One line of JSON, keys sorted, so that equal lineages give equal text."""
        return to_json_line(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote; other fields are an error."""
        try:
            stored = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ArtifactError(f"a lineage that is damaged ({error}); make the artifact again") from error
        types = get_type_hints(cls) | _STORAGE_TYPES
        del types["storage"]
        if not isinstance(stored, dict) or set(stored) != set(types):
            stored_names = sorted(stored) if isinstance(stored, dict) else type(stored).__name__
            raise ArtifactError(
                f"lineage with fields {stored_names}, expected {sorted(types)}: "
                "written by another version of ridgerank; make the artifact again"
            )
        for name, value in stored.items():
            if not isinstance(value, types[name]) or isinstance(value, bool):
                raise ArtifactError(f"a lineage whose {name} is {value!r}: damaged; make the artifact again")
        exit_layer, keep, quantization, *numbers = (stored.pop(name) for name in _STORAGE_TYPES)
        try:
            setting = StorageSetting(Keep.parse(keep), NumberFormat(*numbers), exit_layer)
        except StoreError as error:
            raise ArtifactError(f"a lineage that is damaged ({error}); make the artifact again") from error
        if quantization != setting.numbers.quantization:
            raise ArtifactError(
                f"a lineage whose quantization is {quantization!r}, expected "
                f"{setting.numbers.quantization!r}; make the artifact again"
            )
        return cls(**stored, storage=setting)

    def require(self, expected: "Lineage", *, artifact: str) -> None:
        """Raise `LineageMismatch`, showing both values of every field that differs from `expected`.

        The name a model was loaded by does not count: a folder may move, and its weights are compared.
        """
        ignored = ("backbone", *_FINGERPRINTS)
        differences = list_differences(self.to_dict(), expected.to_dict(), ignored=ignored)
        if shown := "; ".join([*_describe_model(self, expected), *differences]):
            raise LineageMismatch(
                f"{artifact} was made with another lineage ({shown}); "
                "use the settings it was made with, or make it again with these"
            )

    def teacher_fingerprint(self) -> str:
        """Digest of what full-depth targets depend on: the model and what it reads, not the storage."""
        names = ("family", "weights", "transformers", "processor", "prompt", "max_pixels", "page_text")
        return fingerprint({name: getattr(self, name) for name in names})


_STORAGE_TYPES: dict[str, Any] = {
    "exit_layer": int,
    "keep": str,
    "quantization": str,
    "key_bits": int,
    "value_bits": int,
    "number_group": int | None,
}
"""How a lineage writes a storage setting."""


def to_json_line(facts: Mapping[str, object]) -> str:
    """Facts as one line of JSON, keys sorted."""
    return json.dumps(facts, sort_keys=True, ensure_ascii=False)


def list_differences(
    stored: Mapping[str, object], expected: Mapping[str, object], *, ignored: Container[str]
) -> list[str]:
    """Both values of every fact in which two records differ, except those `ignored`."""
    differing = (name for name in stored if name not in ignored and stored[name] != expected[name])
    return [f"{name}: {stored[name]!r} there, {expected[name]!r} here" for name in differing]


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
