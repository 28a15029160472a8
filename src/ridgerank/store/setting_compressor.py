"""An encoded page stored in several ways."""

from collections.abc import Sequence

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.prefix import Prefix
from ridgerank.records import Page
from ridgerank.store.compress import compress, encode_shared
from ridgerank.store.layout import PackedPrefix, SharedPrefix
from ridgerank.store.storage_setting import StorageSetting


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
