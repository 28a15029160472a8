"""Which visual positions of a page stay: a fraction γ of them, chosen by a rule.

A `Keep` prints and parses (`stride 1/3`), and that text is what a lineage records. System and
instruction positions always stay. Every rule returns exactly `round(γ n)` positions, at least one,
and the same ones for the same page. This module knows arrays, no model and no file.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ridgerank.errors import StoreError
from ridgerank.store.token_salience import token_worth

Indices = NDArray[np.int64]

INK_THRESHOLD = 4.0
"""Grey levels of 255: a region whose standard deviation is below this is blank, scanner noise included."""


@dataclass(frozen=True, slots=True, eq=False)
class PageLook:
    """What a rule may look at."""

    grid: tuple[int, int]
    """Rows and columns of the visual positions on the page."""
    grey: NDArray[Any]
    """(height, width): the page image in grey levels, 0 to 255."""
    features: NDArray[Any]
    """(visual positions, dim): a vector for each, such as its values at the last stored layer."""
    pieces: tuple[str, ...] | None = None
    """(visual positions,): the characters each stands for; None where the page is an image."""


Rule = Callable[[PageLook, int], Indices]
"""Picks `count` of the visual positions, in raster order."""


def stride(look: PageLook, count: int) -> Indices:
    """Every (1/γ)-th position in raster order: what the paper does."""
    return evenly(look.grid[0] * look.grid[1], count)


def ink(look: PageLook, count: int) -> Indices:
    """Positions whose region of the page has something on it; blank ones only with what is left over.

    Where the budget covers not even the regions with ink, an even stride over these is taken.
    """
    if look.pieces is not None:
        raise StoreError("the rule 'ink' looks at an image, and this page is text; use stride or informative")
    inked = patch_deviation(look.grey, look.grid).ravel() > INK_THRESHOLD
    written, blank = np.flatnonzero(inked), np.flatnonzero(~inked)
    if written.size >= count:
        return written[evenly(written.size, count)]
    filling = blank[evenly(blank.size, count - written.size)]
    return np.sort(np.concatenate([written, filling]))


def informative(look: PageLook, count: int) -> Indices:
    """Tokens of words that say what the page is about: numbers, names, long and rare words, headings."""
    if look.pieces is None:
        raise StoreError("the rule 'informative' reads text, and this page is an image; use stride or ink")
    worth = token_worth(look.pieces)
    return np.sort(np.argsort(-worth, kind="stable")[:count])


def spread(look: PageLook, count: int) -> Indices:
    """Positions that differ most: each next one is farthest from those already taken.

    Starts at the position farthest from the mean; a repeated background is taken once, then last.
    """
    features = np.asarray(look.features, dtype=np.float32)
    features = features - features.mean(axis=0)
    products = features @ features.T
    squares = products.diagonal()
    nearest = squares.copy()
    taken = np.empty(count, dtype=np.int64)
    for step in range(count):
        taken[step] = chosen = int(nearest.argmax())
        distance = squares - 2 * products[chosen] + squares[chosen]
        nearest = distance if step == 0 else np.minimum(nearest, distance)
        nearest[taken[: step + 1]] = -np.inf
    return np.sort(taken)


RULES: Mapping[str, Rule] = MappingProxyType(
    {"stride": stride, "ink": ink, "spread": spread, "informative": informative}
)
"""Every rule by the name a lineage records."""


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
            raise StoreError(f"a fraction {self.fraction} of the visual positions, wanted above 0, at most 1")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` wrote: a rule, a space, a fraction (`1/3`, `0.25`, `1`)."""
        matched = re.fullmatch(r"(\w+) (\d+/[1-9]\d*|\d*\.?\d+)", text.strip())
        if matched is None:
            raise StoreError(f"kept positions spelled {text!r}, wanted a rule and a fraction: 'stride 1/3'")
        return cls(matched[1], Fraction(matched[2]))

    def __str__(self) -> str:
        return f"{self.rule} {self.fraction}"

    def count(self, visual: int) -> int:
        """How many of `visual` positions stay: round(γ n), at least one where there are any."""
        return min(visual, max(1, round(self.fraction * visual)))

    def positions(self, visual: NDArray[np.bool_], look: PageLook) -> NDArray[np.int32]:
        """List all positions that stay, in order: every one that is not visual, and the rule's choice.

        `visual` is (positions,): which positions of the prefix hold the page.
        """
        on_page = np.flatnonzero(visual)
        if on_page.size != look.grid[0] * look.grid[1]:
            raise StoreError(f"{on_page.size} visual positions on a grid of {look.grid}")
        stays = ~visual
        if on_page.size:
            stays[on_page[RULES[self.rule](look, self.count(on_page.size))]] = True
        return np.flatnonzero(stays).astype(np.int32)


def evenly(total: int, count: int) -> Indices:
    """`count` of `total` indices, spread evenly: ⌊(i + ½) total / count⌋. Gaps differ by at most one."""
    return (2 * np.arange(count, dtype=np.int64) + 1) * total // (2 * max(count, 1))


def patch_deviation(grey: NDArray[Any], grid: tuple[int, int]) -> NDArray[np.float64]:
    """Take the standard deviation of grey within each cell of the grid, (rows, columns)."""
    rows, columns = (
        np.unique(np.arange(cells) * extent // cells, return_inverse=True)
        for cells, extent in zip(grid, grey.shape, strict=True)
    )
    area = np.outer(np.diff(rows[0], append=grey.shape[0]), np.diff(columns[0], append=grey.shape[1]))
    mean, mean_square = (
        np.add.reduceat(np.add.reduceat(power, rows[0], axis=0), columns[0], axis=1) / area
        for power in (grey.astype(np.float64), np.square(grey, dtype=np.float64))
    )
    deviation: NDArray[np.float64] = np.sqrt(np.maximum(mean_square - mean**2, 0.0))
    # An image with fewer pixels than cells gives several cells the same pixels.
    return deviation[np.ix_(rows[1], columns[1])]
