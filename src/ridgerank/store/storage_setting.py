"""How pages are stored, as one value, and an encoded page stored in several ways."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.prefix import Prefix
from ridgerank.lineage import Lineage
from ridgerank.records import Page
from ridgerank.store.compress import compress, encode_shared
from ridgerank.store.layout import PackedPrefix, SharedPrefix
from ridgerank.store.model_lineage import stored_numbers
from ridgerank.store.number_format import NumberFormat
from ridgerank.store.pruning import Keep


@dataclass(frozen=True, slots=True)
class StorageSetting:
    """How a page is stored: `stride 1/3, 8 bits, exit 6`."""

    keep: Keep
    numbers: NumberFormat
    exit_layer: int

    @classmethod
    def from_lineage(cls, lineage: Lineage) -> Self:
        """The setting of the store with this lineage."""
        return cls(Keep.parse(lineage.keep), stored_numbers(lineage), lineage.exit_layer)

    def __str__(self) -> str:
        return f"{self.keep}, {self.numbers} bits, exit {self.exit_layer}"


class SettingCompressor:
    """Stores an encoded page in several ways."""

    def __init__(
        self, backbone: Backbone, settings: Sequence[StorageSetting], *, join_layer: int = 0
    ) -> None:
        self._join_layer = join_layer
        self._shared: dict[StorageSetting, SharedPrefix | None] = dict.fromkeys(settings)
        packed = [setting for setting in settings if not setting.numbers.symmetric]
        deepest = max((setting.exit_layer for setting in packed), default=0)
        # The positions before the page do not depend on how numbers are packed, nor on layers above.
        whole = (
            encode_shared(backbone, packed[0].numbers, exit_layer=deepest, join_layer=join_layer)
            if packed
            else None
        )
        if whole is not None:
            for setting in packed:
                layers = setting.exit_layer - join_layer
                self._shared[setting] = SharedPrefix(whole.keys[:layers], whole.values[:layers])

    def compress(self, prefix: Prefix, page: Page, setting: StorageSetting) -> PackedPrefix:
        """The page as a store of this setting holds it; `prefix` has at least its layers."""
        layers = prefix.layers(0, setting.exit_layer - self._join_layer)
        return compress(layers, page.image, setting.keep, setting.numbers, self._shared[setting])
