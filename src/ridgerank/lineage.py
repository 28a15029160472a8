"""How pages are stored, and what an artifact was made with, so that it is never read under anything else.

A prefix stored by one model means nothing to another, nor to the same model under another prompt or exit
layer. The store and the readout both carry a `Lineage`, which is compared with that of the loaded model: what
changes results is refused, what does not is recorded.
"""

import hashlib
import json
import re
import shlex
from collections.abc import Callable, Container, Mapping
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal, Self, TypeAlias, get_args

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


_PAPER_EXIT_LAYER = 21

StoragePreset = Literal["small", "paper"]
"""Settings by name: `small` is the best measured for the kind of page a model reads (docs/storage.md)."""
STORAGE_PRESETS: tuple[StoragePreset, ...] = get_args(StoragePreset)


def parse_storage_preset(name: str) -> StoragePreset:
    """A preset by its name."""
    if name not in STORAGE_PRESETS:
        raise StoreError(f"no preset called {name!r}; known: {', '.join(STORAGE_PRESETS)}")
    return name


def default_exit_layer(layers: int) -> int:
    """The paper's layer 21, or three quarters of a model that is less deep than the paper's two."""
    return min(_PAPER_EXIT_LAYER, max(1, round(0.75 * layers)))


def parse_quality(text: str) -> float:
    """How fine coefficients are stored: a number."""
    try:
        quality = float(text)
    except ValueError:
        quality = 0.0
    if not MIN_QUALITY <= quality <= MAX_QUALITY:
        raise StoreError(f"quality is {text!r}, expected a number from {MIN_QUALITY:g} to {MAX_QUALITY:g}")
    return quality


MIN_QUALITY, MAX_QUALITY = 0.01, 64.0


@dataclass(frozen=True, slots=True)
class StorageSetting:
    """How a page is stored: `stride 1/3, int8, exit 6`, or `value-norm 1/5, quality 1.5, exit 6`."""

    keep: Keep
    exit_layer: int
    """ℓ: layers [0, ℓ) are stored, and the state is read after layer ℓ − 1."""
    quality: float | None = None
    """The standard deviation of a mean channel over the step of its code. None is the paper's int8."""
    basis: str | None = None
    """Digest of the basis; None for int8, and until one is fitted."""

    @classmethod
    def from_preset(
        cls,
        preset: StoragePreset,
        *,
        layers: int,
        reads_text: bool,
        **parts: Any,  # noqa: ANN401 (of `override`)
    ) -> Self:
        """The setting of this name for a model of so many layers; `parts` are those of `override`."""
        if preset == "paper":
            named = cls(Keep(), default_exit_layer(layers))
        elif reads_text:
            named = cls(Keep("value-norm", Fraction(1, 2)), max(1, round(0.4 * layers)), TEXT_QUALITY)
        else:
            named = cls(Keep("value-norm", Fraction(1, 5)), default_exit_layer(layers), IMAGE_QUALITY)
        return named.override(**parts)

    def override(self, **parts: Any) -> Self:  # noqa: ANN401 (numbers and a Keep)
        """The same with another `keep`, `quality` or `exit_layer`, where it is not None; without a basis."""
        return replace(self, basis=None, **{name: part for name, part in parts.items() if part is not None})

    def command_options(self) -> str:
        """As one would type it for `ridgerank index`."""
        parts = {"--keep": self.keep, "--quality": self.quality, "--exit-layer": self.exit_layer}
        return " ".join(
            f"{option} {shlex.quote(f'{part:g}' if isinstance(part, float) else str(part))}"
            for option, part in parts.items()
            if part is not None
        )

    def __str__(self) -> str:
        numbers = "int8" if self.quality is None else f"quality {self.quality:g}"
        return f"{self.keep}, {numbers}, exit {self.exit_layer}"


IMAGE_QUALITY, TEXT_QUALITY = 1.0, 0.75
"""Of the preset `small`, as measured (docs/storage.md)."""


StorageChoice: TypeAlias = Callable[..., StorageSetting]
"""`partial` of `StorageSetting.from_preset`: called with `layers` and `reads_text` once a model is loaded."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """Everything that decides what a prefix and a state mean; weights, processor, prompt as fingerprints."""

    backbone: str
    """The name or folder the model was loaded from, to load it again. Not compared: the weights are."""
    family: str
    """The model's type, as transformers calls it."""
    weights: str
    processor: str
    prompt: str
    storage: StorageSetting
    max_pixels: int | None = None
    page_text: str | None = None
    prompt_name: str | None = None
    made_by: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Release of transformers, dtype and device. Recorded, not compared: the probe of a store tells."""

    def to_dict(self) -> dict[str, Any]:
        """All fields side by side, those of the storage setting as text and numbers."""
        facts = asdict(self)
        storage: dict[str, Any] = facts.pop("storage")
        return facts | storage | {"keep": str(self.storage.keep)}

    def to_json(self) -> str:
        """One line of JSON, keys sorted, so that equal lineages give equal text."""
        return to_json_line(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote; other fields are an error."""
        try:
            stored = json.loads(text)
            if not isinstance(stored, dict) or set(stored) != set(_TYPES):
                raise ValueError(f"fields {sorted(stored)}, expected {sorted(_TYPES)}")
            for name, value in stored.items():
                if not isinstance(value, _TYPES[name]) or isinstance(value, bool):
                    raise ValueError(f"{name} is {value!r}")
            keep, *parts = (stored.pop(name) for name in ("keep", "exit_layer", "quality", "basis"))
            return cls(**stored, storage=StorageSetting(Keep.parse(keep), *parts))
        except (ValueError, TypeError, RecursionError, StoreError) as error:
            raise ArtifactError(
                f"a lineage that is damaged, or of another version of ridgerank ({error}); make the artifact "
                "again"
            ) from error

    def require(self, expected: "Lineage", *, artifact: str) -> None:
        """Raise `LineageMismatch`, showing both values of every field that differs, names of models aside."""
        ignored = ("backbone", "made_by", *_FINGERPRINTS)
        differences = list_differences(self.to_dict(), expected.to_dict(), ignored=ignored)
        if shown := "; ".join([*_describe_model(self, expected), *differences]):
            raise LineageMismatch(
                f"{artifact} was made with another lineage ({shown}); "
                "use the settings it was made with, or make it again with these"
            )

    def teacher_fingerprint(self) -> str:
        """Digest of what full-depth targets depend on: the model and what it reads, not the storage."""
        names = ("family", "weights", "processor", "prompt", "max_pixels", "page_text")
        return fingerprint({name: getattr(self, name) for name in names})


_TYPES: dict[str, Any] = {
    **dict.fromkeys(("backbone", "family", "weights", "processor", "prompt", "keep"), str),
    **dict.fromkeys(("basis", "page_text", "prompt_name"), str | None),
    **{"exit_layer": int, "quality": float | None, "max_pixels": int | None, "made_by": dict},
}


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


def _describe_model(stored: Lineage, expected: Lineage) -> list[str]:
    """In which way the model is another one, in words; other weights bring their own tokenizer and prompt."""
    if stored.weights != expected.weights:
        if stored.backbone != expected.backbone:
            return [f"model: {stored.backbone!r} there, {expected.backbone!r} here"]
        return [f"model: {stored.backbone!r} with other weights"]
    words = {"processor": "another tokenizer or image processor", "prompt": "another prompt"}
    return [f"{name}: {words[name]}" for name in words if getattr(stored, name) != getattr(expected, name)]


def fingerprint(parts: Mapping[str, object]) -> str:
    """A 128-bit digest, in hex, of settings that JSON can express."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
