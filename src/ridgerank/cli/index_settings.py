"""The settings of `ridgerank index`: what was typed, else what the store was made with, else a preset.

All of it is decided before a model is loaded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgerank.backbones.model_settings import ModelSettings, find_model
from ridgerank.cli.talk import say
from ridgerank.errors import BackboneError, DocumentError, LineageMismatch
from ridgerank.lineage import Lineage
from ridgerank.store.storage_setting import (
    Keep,
    NumberFormat,
    StoragePreset,
    StorageSetting,
    parse_storage_preset,
    stored_numbers,
)

if TYPE_CHECKING:
    from ridgerank.backbones.base import Backbone


@dataclass(frozen=True, slots=True)
class IndexChoices:
    """What was typed; None where nothing was."""

    backbone: str | None = None
    device: str | None = None
    dtype: str | None = None
    preset: str | None = None
    keep: str | None = None
    bits: str | None = None
    exit_layer: int | None = None
    max_pixels: int | None = None
    page_text: str | None = None
    prompt: str | None = None


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """The model and how its pages are stored; what is None is as the preset says for the model."""

    model: ModelSettings
    preset: StoragePreset
    keep: Keep | None
    numbers: NumberFormat | None
    exit_layer: int | None
    stored_model: str | None = None
    """The model of the store that is there."""
    repeated_preset: StoragePreset | None = None
    """Typed for a store that is there: its exit layer is compared once the model's layers are known."""

    def load_model(self, store: str) -> "Backbone":
        """Load the model; one that cannot read as the store's own did is refused by both names."""
        say(f"loading {self.model.name}")
        try:
            model = self.model.load()
        except BackboneError as error:
            if self.stored_model in (None, self.model.name):
                raise
            raise LineageMismatch(
                f"{store} was made with {self.stored_model}, and {self.model.name} cannot take its place "
                f"({error}); leave --backbone out, or index into another store"
            ) from error
        if self.repeated_preset is not None:
            exit_layer = StorageSetting.from_preset(
                self.repeated_preset, layers=model.geometry.layers, reads_text=model.reads_text
            ).exit_layer
            if exit_layer != self.exit_layer:
                raise LineageMismatch(
                    f"{store} was made with --exit-layer {self.exit_layer}, and --preset "
                    f"{self.repeated_preset} is {exit_layer} for {self.model.name}; leave --preset out, or "
                    "index into another store"
                )
        return model


def settle_index(choices: IndexChoices, store: str) -> IndexSettings:
    """The settings for a new store, or those of the store that is there; a difference to it is refused."""
    preset = parse_storage_preset(choices.preset or "small")
    keep = None if choices.keep is None else Keep.parse(choices.keep)
    numbers = None if choices.bits is None else NumberFormat.parse(choices.bits)
    lineage = find_lineage(store)
    if lineage is not None:
        _require_stored(choices, keep, numbers, lineage, store)
        name = choices.backbone or lineage.backbone
        find_model(name)
        if choices.backbone is None:
            say(f"{store} was made with {name}, {StorageSetting.from_lineage(lineage)}: so are the new pages")
        return IndexSettings(
            ModelSettings.from_lineage(lineage, name=name, device=choices.device, dtype=choices.dtype),
            preset,
            Keep.parse(lineage.keep),
            stored_numbers(lineage),
            lineage.exit_layer,
            lineage.backbone,
            None if choices.preset is None or choices.exit_layer is not None else preset,
        )
    if choices.backbone is None:
        from ridgerank.indexing.index import describe_models

        raise BackboneError(f"{describe_models(store)}\nName one with --backbone, or in RIDGERANK_BACKBONE.")
    find_model(choices.backbone)
    model = ModelSettings(
        choices.backbone, choices.device, choices.dtype, choices.max_pixels, choices.page_text, choices.prompt
    )
    return IndexSettings(model, preset, keep, numbers, choices.exit_layer)


def find_lineage(store: str) -> Lineage | None:
    """What the store was made with, None where there is none yet."""
    from ridgerank.store.lance_dataset import open_dataset, read_lineage

    dataset = open_dataset(store)
    return None if dataset is None else read_lineage(dataset, store)


def require_documents(paths: Sequence[Path]) -> None:
    """Refuse paths under which there is nothing to read, before any model is loaded."""
    from ridgerank.documents.sources import SUFFIXES, Failure, SourceFile, find_sources

    failures = []
    for item in find_sources(paths):
        if isinstance(item, SourceFile):
            return
        if isinstance(item, Failure):
            failures.append(str(item))
    names = ", ".join(map(str, paths))
    reasons = f" ({'; '.join(failures[:3])})" if failures else ""
    raise DocumentError(
        f"nothing to index under {names}{reasons}; wanted files with one of {' '.join(sorted(SUFFIXES))}"
    )


def _require_stored(
    choices: IndexChoices, keep: Keep | None, numbers: NumberFormat | None, lineage: Lineage, store: str
) -> None:
    """Refuse options that differ from what the store was made with, and say what to type."""
    compared: dict[str, tuple[Any, Any]] = {
        "--keep": (keep and str(keep), lineage.keep),
        "--bits": (numbers and str(numbers), str(stored_numbers(lineage))),
        "--exit-layer": (choices.exit_layer, lineage.exit_layer),
        "--max-pixels": (choices.max_pixels, lineage.max_pixels),
        "--page-text": (choices.page_text, lineage.page_text),
        "--prompt": (choices.prompt, lineage.prompt_name),
    }
    if choices.preset is not None:
        _require_preset(parse_storage_preset(choices.preset), keep, numbers, lineage, store)
    differing = {option: values for option, values in compared.items() if values[0] not in (None, values[1])}
    if differing:
        stored = ", ".join(
            f"{option} {str(there)!r}, not {str(here)!r}" for option, (here, there) in differing.items()
        )
        raise LineageMismatch(
            f"{store} was made with {stored}; leave {' and '.join(differing)} out, or index into another "
            "store"
        )


def _require_preset(
    preset: StoragePreset, keep: Keep | None, numbers: NumberFormat | None, lineage: Lineage, store: str
) -> None:
    """Refuse a preset that differs from the store; what was typed beside it stands for its part."""
    stored = StorageSetting.from_lineage(lineage)
    # Of the setting only the exit layer depends on the number of layers.
    named = StorageSetting.from_preset(preset, layers=1, reads_text=lineage.page_text is not None)
    keep, numbers = keep or named.keep, numbers or named.numbers
    if (keep, numbers) != (stored.keep, stored.numbers):
        raise LineageMismatch(
            f"{store} was made with {stored}, and --preset {preset} is {keep}, {numbers} bits; leave "
            "--preset out, or index into another store"
        )
