"""The settings of `ridgerank index`: what was typed, else what the store was made with, else a preset.

All of it is decided before a model is loaded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ridgerank.backbones.model_settings import ModelSettings, find_model
from ridgerank.cli.talk import say
from ridgerank.errors import BackboneError, DocumentError, LineageMismatch
from ridgerank.lineage import (
    Keep,
    Lineage,
    NumberFormat,
    StorageChoice,
    StoragePreset,
    StorageSetting,
    parse_storage_preset,
)

if TYPE_CHECKING:
    from ridgerank.backbones.base import Backbone


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """The model and how its pages are stored."""

    model: ModelSettings
    storage: StorageChoice
    stored: Lineage | None = None
    """The lineage of the store that is there."""
    repeated_preset: StoragePreset | None = None
    """Typed for a store that is there: its exit layer is compared once the model's layers are known."""

    def load_model(self, store: str) -> "Backbone":
        """Load the model; one that cannot read as the store's own did is refused by both names."""
        say(f"loading {self.model.name}")
        try:
            model = self.model.load()
        except BackboneError as error:
            if self.stored is None or self.stored.backbone == self.model.name:
                raise
            raise LineageMismatch(
                f"{store} was made with {self.stored.backbone}, and {self.model.name} cannot take its place "
                f"({error}); leave --backbone out, or index into another store"
            ) from error
        if self.stored is not None and self.repeated_preset is not None:
            stored_layer = self.stored.storage.exit_layer
            exit_layer = StorageSetting.from_preset(
                self.repeated_preset, layers=model.geometry.layers, reads_text=model.reads_text
            ).exit_layer
            if exit_layer != stored_layer:
                raise LineageMismatch(
                    f"{store} was made with --exit-layer {stored_layer}, and --preset "
                    f"{self.repeated_preset} is {exit_layer} for {self.model.name}; leave --preset out, or "
                    "index into another store"
                )
        return model


def settle_index(
    store: str,
    *,
    backbone: str | None = None,
    device: str | None = None,
    dtype: str | None = None,
    preset: str | None = None,
    keep: str | None = None,
    bits: str | None = None,
    exit_layer: int | None = None,
    max_pixels: int | None = None,
    page_text: str | None = None,
    prompt: str | None = None,
) -> IndexSettings:
    """The settings for a new store, or those of the store that is there; a difference to it is refused.

    An option is None if it was not typed.
    """
    chosen_preset = parse_storage_preset(preset or "small")
    chosen_keep = None if keep is None else Keep.parse(keep)
    numbers = None if bits is None else NumberFormat.parse(bits)
    storage = partial(
        StorageSetting.from_preset, chosen_preset, keep=chosen_keep, numbers=numbers, exit_layer=exit_layer
    )
    lineage = find_lineage(store)
    if lineage is not None:
        stored = lineage.storage
        if preset is not None:
            _require_preset(chosen_preset, chosen_keep, numbers, lineage, store)
        compared = {
            "--keep": (chosen_keep, stored.keep),
            "--bits": (numbers, stored.numbers),
            "--exit-layer": (exit_layer, stored.exit_layer),
            "--max-pixels": (max_pixels, lineage.max_pixels),
            "--page-text": (page_text, lineage.page_text),
            "--prompt": (prompt, lineage.prompt_name),
        }
        _require_stored(compared, store)
        name = backbone or lineage.backbone
        find_model(name)
        if backbone is None:
            say(f"{store} was made with {name}, {stored}: so are the new pages")
        return IndexSettings(
            ModelSettings.from_lineage(lineage, name=name, device=device, dtype=dtype),
            partial(storage, keep=stored.keep, numbers=stored.numbers, exit_layer=stored.exit_layer),
            lineage,
            None if preset is None or exit_layer is not None else chosen_preset,
        )
    if backbone is None:
        from ridgerank.indexing.index import describe_models

        raise BackboneError(f"{describe_models(store)}\nName one with --backbone, or in RIDGERANK_BACKBONE.")
    find_model(backbone)
    return IndexSettings(ModelSettings(backbone, device, dtype, max_pixels, page_text, prompt), storage)


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


def _require_stored(compared: Mapping[str, tuple[object, object]], store: str) -> None:
    """Refuse options that differ from what the store was made with, and say what to type."""
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
    stored = lineage.storage
    # Of the setting only the exit layer depends on the number of layers.
    named = StorageSetting.from_preset(preset, layers=1, reads_text=lineage.page_text is not None)
    keep, numbers = keep or named.keep, numbers or named.numbers
    if (keep, numbers) != (stored.keep, stored.numbers):
        raise LineageMismatch(
            f"{store} was made with {stored}, and --preset {preset} is {keep}, {numbers} bits; leave "
            "--preset out, or index into another store"
        )
