"""How many bits a stored number takes, and which numbers share a step.

A `NumberFormat` prints and parses (`8`, `4/2 group 32`). Eight bits without groups is the paper's int8.
This module knows no tensor and no file.
"""

import re
from dataclasses import dataclass
from typing import Self

from ridgerank.errors import StoreError

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
