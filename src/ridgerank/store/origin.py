"""The lineage of a store: which model, which settings."""

import transformers

from ridgerank.backbones.base import Backbone
from ridgerank.lineage import Lineage
from ridgerank.store.keep import Keep
from ridgerank.store.quantize import QUANTIZATION

PAPER_EXIT_LAYER = 21


def default_exit_layer(layers: int) -> int:
    """The paper's layer 21, or three quarters of a model that is less deep than the paper's two."""
    return min(PAPER_EXIT_LAYER, max(1, round(0.75 * layers)))


def lineage_of(backbone: Backbone, *, exit_layer: int, join_layer: int, keep: Keep) -> Lineage:
    """What prefixes encoded with this model and these settings are made with."""
    return Lineage(
        backbone=backbone.name,
        family=backbone.family,
        weights=backbone.weights_fingerprint(),
        transformers=transformers.__version__,
        processor=f"{backbone.processor_fingerprint()}, {backbone.max_pixels} pixels a page",
        prompt=backbone.prompt_fingerprint(),
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
