"""The storage settings that `tune` tries unless it is told which: what was worth trying on each kind of page.

A model that looks at images does with few positions in few bits; one that reads text wants more positions.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from ridgerank.store.number_format import NumberFormat
from ridgerank.store.pruning import Keep
from ridgerank.store.storage_setting import StorageSetting

_Grid = Mapping[Fraction, Sequence[tuple[str, str]]]
"""Positions and bits, by the share of the store's exit layer."""
_IMAGES: _Grid = {
    Fraction(1): (
        ("stride 1/3", "8"),
        ("value-norm 1/3", "4"),
        ("value-norm 1/3", "3/1"),
        ("value-norm 1/5", "4/2"),
        ("value-norm 1/5", "3/2"),
        ("value-norm 1/5", "3/1"),
        ("value-norm 1/6", "4/1"),
        ("value-norm 1/6", "3/1"),
        ("value-norm 1/8", "3/1"),
    ),
    Fraction(3, 4): (
        ("value-norm 1/3", "3/1"),
        ("value-norm 1/5", "3/1"),
        ("value-norm 1/6", "3/1"),
        ("value-norm 1/8", "3/1"),
    ),
    Fraction(4, 7): (
        ("value-norm 1/3", "3/1"),
        ("value-norm 1/5", "3/2"),
        ("value-norm 1/5", "3/1"),
        ("value-norm 1/6", "3/1"),
        ("value-norm 1/8", "3/1"),
    ),
}
_TEXT: _Grid = {
    Fraction(1): (
        ("stride 1/3", "8"),
        ("stride 1", "4 group 32"),
        ("stride 1/2", "4 group 32"),
        ("stride 1/3", "4 group 32"),
        ("value-norm 1/2", "4 group 32"),
        ("value-norm 1/2", "4/2 group 32"),
        ("value-norm 1/2", "4/2"),
        ("value-norm 1/2", "3/2"),
        ("value-norm 1/3", "4 group 32"),
        ("value-norm 1/3", "4/2 group 32"),
        ("value-norm 1/3", "4/2"),
    ),
    Fraction(3, 4): (
        ("value-norm 1/2", "4/2 group 32"),
        ("value-norm 1/2", "4/2"),
        ("value-norm 1/3", "4/2"),
    ),
    Fraction(4, 7): (
        ("value-norm 1/2", "4/2 group 32"),
        ("value-norm 1/2", "4/2"),
        ("value-norm 1/2", "3/2"),
        ("value-norm 1/2", "3/1"),
        ("value-norm 1/3", "4/2"),
    ),
}


def default_settings(
    current: StorageSetting, *, join_layer: int = 0, reads_text: bool = False
) -> list[StorageSetting]:
    """The current setting, then some that are smaller or finer, at its exit layer and at earlier ones."""
    settings = [current]
    for share, pairs in (_TEXT if reads_text else _IMAGES).items():
        exit_layer = max(join_layer + 1, round(share * current.exit_layer))
        settings += [
            StorageSetting(Keep.parse(keep), NumberFormat.parse(bits), exit_layer) for keep, bits in pairs
        ]
    return list(dict.fromkeys(settings))
