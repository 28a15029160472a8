"""The lineage of a store: which model, which settings."""

import re
from typing import TypedDict

import transformers

from ridgerank.backbones.base import Backbone
from ridgerank.lineage import Lineage
from ridgerank.store.pruning import Keep
from ridgerank.store.quantize import QUANTIZATION

PAPER_EXIT_LAYER = 21


class Reading(TypedDict):
    """How a model read its pages, as `load_backbone` takes it; None leaves the default."""

    max_pixels: int | None
    page_text: str | None
    prompt: str | None


def default_exit_layer(layers: int) -> int:
    """The paper's layer 21, or three quarters of a model that is less deep than the paper's two."""
    return min(PAPER_EXIT_LAYER, max(1, round(0.75 * layers)))


def lineage_of(backbone: Backbone, *, exit_layer: int, join_layer: int, keep: Keep) -> Lineage:
    """What prefixes encoded with this model and these settings are made with."""
    return Lineage(
        backbone=backbone.name,
        family=backbone.family,
        weights=backbone.fingerprints().weights,
        transformers=transformers.__version__,
        processor=f"{backbone.fingerprints().processor}, {backbone.page_budget} a page",
        prompt=", ".join(part for part in (backbone.fingerprints().prompt, backbone.prompt.name) if part),
        exit_layer=exit_layer,
        join_layer=join_layer,
        keep=str(keep),
        quantization=QUANTIZATION,
    )


def require_same_origin(stored: Lineage, backbone: Backbone, *, artifact: str) -> None:
    """Refuse an artifact that another model, prompt or release made than the one at hand."""
    at_hand = lineage_of(
        backbone, exit_layer=stored.exit_layer, join_layer=stored.join_layer, keep=Keep.parse(stored.keep)
    )
    stored.require(at_hand, artifact=artifact)


def reading_of(stored: Lineage) -> Reading:
    """What to load the same model with again, so that it reads pages as it did then."""
    pixels = re.search(r", (\d+) pixels a page$", stored.processor)
    tokens = re.search(r", (\w+ \d+) tokens a page$", stored.processor)
    _, _, prompt = stored.prompt.partition(", ")
    return Reading(
        max_pixels=int(pixels[1]) if pixels else None,
        page_text=tokens[1] if tokens else None,
        prompt=prompt or None,
    )
