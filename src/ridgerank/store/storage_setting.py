"""How pages are stored, as one value, and the settings that have a name. Knows no model and no tensor."""

import shlex
from dataclasses import dataclass
from typing import Literal, Self, get_args

from ridgerank.errors import StoreError
from ridgerank.lineage import Lineage
from ridgerank.store.number_format import PAPER_NUMBERS, NumberFormat
from ridgerank.store.pruning import Keep

PAPER_EXIT_LAYER = 21

StoragePreset = Literal["small", "paper"]
"""Settings by name: `small` is the best measured for the kind of page a model reads (docs/storage.md)."""
STORAGE_PRESETS: tuple[StoragePreset, ...] = get_args(StoragePreset)


def default_exit_layer(layers: int) -> int:
    """The paper's layer 21, or three quarters of a model that is less deep than the paper's two."""
    return min(PAPER_EXIT_LAYER, max(1, round(0.75 * layers)))


def stored_numbers(lineage: Lineage) -> NumberFormat:
    """The numbers of the store with this lineage."""
    return NumberFormat(lineage.key_bits, lineage.value_bits, lineage.number_group)


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

    @classmethod
    def from_preset(cls, preset: StoragePreset, *, layers: int, reads_text: bool) -> Self:
        """The setting of this name for a model of so many layers, which reads text or looks at images."""
        if preset == "paper":
            return cls(Keep(), PAPER_NUMBERS, default_exit_layer(layers))
        if reads_text:
            return cls(Keep.parse("value-norm 1/2"), NumberFormat(4, 2, 32), max(1, round(0.4 * layers)))
        return cls(Keep.parse("value-norm 1/5"), NumberFormat(3, 2), default_exit_layer(layers))

    def command_options(self) -> str:
        """As one would type it for `ridgerank index`."""
        parts = {"--keep": self.keep, "--bits": self.numbers, "--exit-layer": self.exit_layer}
        return " ".join(f"{option} {shlex.quote(str(part))}" for option, part in parts.items())

    def __str__(self) -> str:
        return f"{self.keep}, {self.numbers} bits, exit {self.exit_layer}"


def parse_storage_preset(name: str) -> StoragePreset:
    """A preset by its name."""
    for preset in STORAGE_PRESETS:
        if name == preset:
            return preset
    raise StoreError(f"no preset called {name!r}; known: {', '.join(STORAGE_PRESETS)}")
