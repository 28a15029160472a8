"""How a page is stored: which positions, in how many bits, up to which layer; and named settings.

Every part prints and parses (`stride 1/3`, `4/2 group 32`), and that text is what a lineage records. This
module knows arrays, no model, no tensor and no file.
"""

import re
import shlex
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from ridgerank.errors import StoreError
from ridgerank.lineage import Lineage

Indices = NDArray[np.int64]

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

    def positions(
        self, visual: NDArray[np.bool_], value_norms: NDArray[Any] | None = None
    ) -> NDArray[np.int32]:
        """All positions to store, in order: every position that is not visual, and the rule's choice.

        `visual` is (positions,): which positions of the prefix hold the page. `value_norms` is (visual
        positions,): the norm of each value vector, averaged over layers and heads.
        """
        on_page = np.flatnonzero(visual)
        count = self.count(on_page.size)
        if self.rule == "stride":
            chosen = even_indices(on_page.size, count)
        elif value_norms is None or len(value_norms) != on_page.size:
            raise StoreError(f"the rule {self.rule!r} needs the norm of every value vector of the page")
        else:
            chosen = np.argsort(-np.asarray(value_norms), kind="stable")[:count]
        stored = ~visual
        stored[on_page[chosen]] = True
        return np.flatnonzero(stored).astype(np.int32)


def even_indices(total: int, count: int) -> Indices:
    """`count` of `total` indices, spread evenly: ⌊(i + ½) total / count⌋. Gaps differ by at most one."""
    return (2 * np.arange(count, dtype=np.int64) + 1) * total // (2 * max(count, 1))


WIDTHS = (8, 4, 3, 2)
"""Bits a number may take: those of a range from its smallest to its largest."""
VALUE_WIDTHS = (*WIDTHS, 1)
"""Bits a value may take. Keys are compared with queries and need to be told apart finer."""


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """Bits of keys and of values, and the size of the groups that share a step."""

    key_bits: int = 8
    value_bits: int = 8
    group: int | None = None
    """How many positions of a key channel, and how many channels of a value, share a step; None is all."""

    def __post_init__(self) -> None:
        if self.key_bits not in WIDTHS or self.value_bits not in VALUE_WIDTHS:
            raise StoreError(
                f"keys of {self.key_bits} bits and values of {self.value_bits}, wanted keys of "
                f"{', '.join(map(str, WIDTHS))} and values of {', '.join(map(str, VALUE_WIDTHS))}"
            )
        if self.group is not None and not 8 <= self.group < 1 << 16:
            raise StoreError(f"groups of {self.group} numbers, wanted 8 to 65535; 32 is usual")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` wrote: bits, or bits of keys and of values, then the size of groups if any."""
        matched = re.fullmatch(r"(\d)(?:/(\d))?(?: group (\d{1,9}))?", text.strip())
        if matched is None:
            raise StoreError(
                f"bits spelled {text!r}, wanted '8', '4', '4/2' (keys/values) or '4 group 32' (a step for 32)"
            )
        keys, values, group = matched.groups()
        return cls(int(keys), int(values or keys), None if group is None else int(group))

    def __str__(self) -> str:
        bits = (
            str(self.key_bits) if self.key_bits == self.value_bits else f"{self.key_bits}/{self.value_bits}"
        )
        return bits if self.group is None else f"{bits} group {self.group}"

    @property
    def symmetric(self) -> bool:
        """Whether numbers are signed codes times a scale, as in the paper; all others have a minimum, too."""
        return (self.key_bits, self.value_bits, self.group) == (8, 8, None)

    def count_groups(self, size: int) -> int:
        """How many groups `size` numbers make; the last may be smaller."""
        return -(-size // self.group) if self.group is not None else 1


PAPER_NUMBERS = NumberFormat()
"""int8, symmetric: one scale per key channel and one per value position."""


def packed_rows(positions: int, bits: int) -> int:
    """Rows of bytes that hold `positions` rows of codes: a byte has the codes of neighbouring positions.

    Three bits are two bits of four positions, then one bit of eight.
    """
    if bits == 3:
        return -(-positions // 4) - (-positions // 8)
    return -(-positions * bits // 8)


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
