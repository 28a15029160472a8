"""Which visual positions of a page are stored: a fraction γ of them, chosen by a rule.

A `Keep` prints and parses (`stride 1/3`), and that text is what a lineage records. System and
instruction positions are always stored. Every rule returns exactly `round(γ n)` positions, at least one,
and the same positions for the same page. This module knows arrays, no model and no file.
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
from ridgerank.store.token_salience import score_tokens

Indices = NDArray[np.int64]

INK_THRESHOLD = 4.0
"""Grey levels of 255: a region whose standard deviation is below this is blank, scanner noise included."""


@dataclass(frozen=True, slots=True, eq=False)
class PageFeatures:
    """What a rule may choose by."""

    grid: tuple[int, int]
    """Rows and columns of the visual positions on the page."""
    grey: NDArray[Any]
    """(height, width): the page image in grey levels, 0 to 255."""
    features: NDArray[Any]
    """(visual positions, dim): a vector per position, such as its values at the last stored layer."""
    pieces: tuple[str, ...] | None = None
    """(visual positions,): the characters each stands for; None where the page is an image."""
    value_norms: NDArray[Any] | None = None
    """(visual positions,): the norm of the value vector, averaged over stored layers and heads."""
    value_distances: NDArray[Any] | None = None
    """(visual positions,): the distance to the page's mean value vector, averaged in the same way."""


Rule = Callable[[PageFeatures, int], Indices]
"""Chooses `count` of the visual positions, in raster order."""


def choose_stride(page: PageFeatures, count: int) -> Indices:
    """Every (1/γ)-th position in raster order, as in the paper."""
    return even_indices(page.grid[0] * page.grid[1], count)


def choose_ink(page: PageFeatures, count: int) -> Indices:
    """Positions whose region of the page is not blank, then blank ones until there are `count`.

    Where more than `count` regions have ink, an even stride over these is chosen.
    """
    if page.pieces is not None:
        raise StoreError("the rule 'ink' looks at an image, and this page is text; use stride or informative")
    inked = cell_deviation(page.grey, page.grid).ravel() > INK_THRESHOLD
    with_ink, blank = np.flatnonzero(inked), np.flatnonzero(~inked)
    if with_ink.size >= count:
        return with_ink[even_indices(with_ink.size, count)]
    blank_fill = blank[even_indices(blank.size, count - with_ink.size)]
    return np.sort(np.concatenate([with_ink, blank_fill]))


def choose_informative(page: PageFeatures, count: int) -> Indices:
    """Tokens of words that say what the page is about: numbers, names, long and rare words, headings."""
    if page.pieces is None:
        raise StoreError("the rule 'informative' reads text, and this page is an image; use stride or ink")
    scores = score_tokens(page.pieces)
    return np.sort(np.argsort(-scores, kind="stable")[:count])


def choose_spread(page: PageFeatures, count: int) -> Indices:
    """Positions that differ most: each next position is the farthest from those already chosen.

    It starts at the position farthest from the mean; of a repeated background all but one come last.
    """
    features = np.asarray(page.features, dtype=np.float32)
    features = features - features.mean(axis=0)
    products = features @ features.T
    squares = products.diagonal()
    nearest = squares.copy()
    chosen = np.empty(count, dtype=np.int64)
    for step in range(count):
        chosen[step] = farthest = int(nearest.argmax())
        distance = squares - 2 * products[farthest] + squares[farthest]
        nearest = distance if step == 0 else np.minimum(nearest, distance)
        nearest[chosen[: step + 1]] = -np.inf
    return np.sort(chosen)


def choose_value_norm(page: PageFeatures, count: int) -> Indices:
    """Positions with the longest value vectors: whatever attends to them, they move a state the most."""
    return _choose_highest(page.value_norms, "value-norm", count)


def choose_value_distance(page: PageFeatures, count: int) -> Indices:
    """Positions whose value vectors are farthest from the page's mean."""
    return _choose_highest(page.value_distances, "value-distance", count)


def _choose_highest(scores: NDArray[Any] | None, rule: str, count: int) -> Indices:
    if scores is None:
        raise StoreError(f"the rule {rule!r} chooses by value vectors, and none are known of this page")
    return np.sort(np.argsort(-np.asarray(scores), kind="stable")[:count])


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "stride": choose_stride,
        "value-norm": choose_value_norm,
        "value-distance": choose_value_distance,
        "ink": choose_ink,
        "spread": choose_spread,
        "informative": choose_informative,
    }
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
        matched = re.fullmatch(r"([\w-]+) (\d+/[1-9]\d*|\d*\.?\d+)", text.strip())
        if matched is None:
            raise StoreError(f"kept positions spelled {text!r}, wanted a rule and a fraction: 'stride 1/3'")
        return cls(matched[1], Fraction(matched[2]))

    def __str__(self) -> str:
        return f"{self.rule} {self.fraction}"

    def require_readable(self, *, reads_text: bool) -> None:
        """Refuse a rule that needs what such a model does not see: a page's text, or its image."""
        if self.rule == "informative" and not reads_text:
            raise StoreError(f"keep {str(self)!r} reads text, and this model sees images; use value-norm")
        if self.rule == "ink" and reads_text:
            raise StoreError(f"keep {str(self)!r} sees an image, and this model reads text; use value-norm")

    def count(self, visual: int) -> int:
        """How many of `visual` positions are stored: round(γ n), at least one where there are any."""
        return min(visual, max(1, round(self.fraction * visual)))

    def positions(self, visual: NDArray[np.bool_], page: PageFeatures) -> NDArray[np.int32]:
        """All positions to store, in order: every position that is not visual, and the rule's choice.

        `visual` is (positions,): which positions of the prefix hold the page.
        """
        on_page = np.flatnonzero(visual)
        if on_page.size != page.grid[0] * page.grid[1]:
            raise StoreError(f"{on_page.size} visual positions on a grid of {page.grid}")
        stored = ~visual
        if on_page.size:
            stored[on_page[RULES[self.rule](page, self.count(on_page.size))]] = True
        return np.flatnonzero(stored).astype(np.int32)


def even_indices(total: int, count: int) -> Indices:
    """`count` of `total` indices, spread evenly: ⌊(i + ½) total / count⌋. Gaps differ by at most one."""
    return (2 * np.arange(count, dtype=np.int64) + 1) * total // (2 * max(count, 1))


def cell_deviation(grey: NDArray[Any], grid: tuple[int, int]) -> NDArray[np.float64]:
    """The standard deviation of grey within each cell of the grid, (rows, columns)."""
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
