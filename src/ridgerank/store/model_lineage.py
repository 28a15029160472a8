"""The lineage that a model and the settings of a store give, and whether a stored lineage fits a model."""

import transformers

from ridgerank.backbones.base import Backbone
from ridgerank.lineage import Lineage
from ridgerank.store.codec import PACKED_QUANTIZATION, QUANTIZATION
from ridgerank.store.storage_setting import (
    PAPER_NUMBERS,
    Keep,
    NumberFormat,
    StoragePreset,
    StorageSetting,
    stored_numbers,
)


def make_lineage(
    backbone: Backbone,
    *,
    exit_layer: int,
    keep: Keep,
    numbers: NumberFormat = PAPER_NUMBERS,
) -> Lineage:
    """The lineage of prefixes encoded with this model and these settings."""
    return Lineage(
        backbone=backbone.name,
        family=backbone.family,
        weights=backbone.fingerprints().weights,
        transformers=transformers.__version__,
        processor=backbone.fingerprints().processor,
        prompt=backbone.fingerprints().prompt,
        exit_layer=exit_layer,
        keep=str(keep),
        quantization=QUANTIZATION if numbers.symmetric else PACKED_QUANTIZATION,
        max_pixels=None if backbone.reads_text else backbone.max_pixels,
        page_text=backbone.page_text,
        prompt_name=backbone.prompt.name or None,
        key_bits=numbers.key_bits,
        value_bits=numbers.value_bits,
        number_group=numbers.group,
    )


def complete_setting(
    backbone: Backbone,
    preset: StoragePreset,
    *,
    keep: Keep | None = None,
    numbers: NumberFormat | None = None,
    exit_layer: int | None = None,
) -> StorageSetting:
    """The setting of a preset for this model, with the parts that are given in place of its own."""
    setting = StorageSetting.from_preset(
        preset, layers=backbone.geometry.layers, reads_text=backbone.reads_text
    )
    return StorageSetting(
        keep or setting.keep,
        numbers or setting.numbers,
        setting.exit_layer if exit_layer is None else exit_layer,
    )


def require_same_model(stored: Lineage, backbone: Backbone, *, artifact: str) -> None:
    """Refuse an artifact that was made with another model, prompt or release than `backbone`."""
    loaded = make_lineage(
        backbone,
        exit_layer=stored.exit_layer,
        keep=Keep.parse(stored.keep),
        numbers=stored_numbers(stored),
    )
    stored.require(loaded, artifact=artifact)
