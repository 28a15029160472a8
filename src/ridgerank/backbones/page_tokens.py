"""A page on its way into the decoder: token ids, visual features and rotary positions."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class PageTokens:
    """A page as the decoder receives it."""

    ids: Tensor
    """(positions,) int64."""
    visual: Tensor
    """(positions,) bool: where the page itself stands."""
    features: Tensor | None
    """(visual positions, width): what the vision tower puts there; None where the page is text."""
    positions: Tensor
    """(axes, positions) int64: rotary positions."""
    grid: tuple[int, int]
    """Rows and columns of the visual positions."""
    pieces: tuple[str, ...] | None = None
    """(visual positions,): the characters each stands for, where the page is text."""
