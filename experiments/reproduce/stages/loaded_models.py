"""Models loaded when first asked for, one backbone and one encoder at a time: large ones may not all fit."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ridgerank.backbones.base import Backbone
    from ridgerank.retrievers.encoders.base import MultiVectorEncoder


class Models:
    """The last backbone and the last encoder that were asked for."""

    def __init__(self, device: str | None) -> None:
        self._device = device
        self._backbone: tuple[str, Backbone] | None = None
        self._encoder: tuple[str, MultiVectorEncoder] | None = None

    def backbone(self, name: str) -> "Backbone":
        """Load a backbone; the one before is let go."""
        from ridgerank.backbones.load import load_backbone

        if self._backbone is None or self._backbone[0] != name:
            self._backbone = None
            self._backbone = name, load_backbone(name, device=self._device)
        return self._backbone[1]

    def encoder(self, name: str) -> "MultiVectorEncoder":
        """Load a late interaction model; the one before is let go."""
        from ridgerank.retrievers.encoders.load import load_encoder

        if self._encoder is None or self._encoder[0] != name:
            self._encoder = None
            self._encoder = name, load_encoder(name, device=self._device)
        return self._encoder[1]
