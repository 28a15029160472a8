"""Third and fourth lesson: with a part of the cells hidden, and in words only in the last layers.

A stored page keeps only a part of its positions, so what is read must spread over neighbouring ones. A large
model knows before it says: at three quarters of its depth the state holds the answer, but not in the
direction of the answer's words, and so a fitted readout beats the logit lens. A small model
left alone speaks from the start: in the fourth lesson whatever the lens would say at the exit layer costs.
"""

import torch
from torch import Tensor

from miniature.training.matching_lesson import MatchingLesson
from miniature.training.packing import CELLS, Answered, Packed

SHOWN = (1 / 3, 1.0)
"""Smallest and largest share of a page's cells that questions may look at."""
STRIDE = 3
"""Every other page shows one cell in three, evenly, as a store keeps them."""


class KeepingLesson(MatchingLesson):
    """Go on with the decoder alone, on embedded words."""

    name = "keeping"

    def seen(self, pages: int, chance: torch.Generator) -> Tensor:
        """Hide most cells of most pages."""
        return some_cells(pages, chance)


def some_cells(pages: int, chance: torch.Generator) -> Tensor:
    """(pages, 192) bool: in turn a random subset of the cells, and an even one."""
    seen = seen_cells(pages, CELLS, SHOWN, chance)
    seen[1::2] = even_cells(pages, CELLS, STRIDE, chance)[1::2]
    return seen


def seen_cells(pages: int, cells: int, share: tuple[float, float], generator: torch.Generator) -> Tensor:
    """(pages, cells) bool: a random subset for the questions, of a share drawn for each page."""
    low, high = share
    shares = low + (high - low) * torch.rand(pages, 1, generator=generator)
    return torch.rand(pages, cells, generator=generator) < shares


def even_cells(pages: int, cells: int, stride: int, generator: torch.Generator) -> Tensor:
    """(pages, cells) bool: one cell in `stride`, from a first one drawn for each page."""
    first = torch.randint(stride, (pages, 1), generator=generator)
    return torch.arange(cells) % stride == first


SILENCE = 0.2
"""Of the loss: the mean square of the early margin, over that of the final one."""


class WordingLesson(KeepingLesson):
    """Go on with the decoder, and keep it from speaking early."""

    name = "wording"

    def loss(self, answered: Answered, packed: Packed) -> Tensor:
        """What a wrong answer costs, and an early one."""
        early, final = (self._margins(logits) for logits in (answered.lens, answered.logits))
        spoken = early.square().mean() / final.detach().square().mean()
        return super().loss(answered, packed) + SILENCE * spoken

    def _margins(self, logits: Tensor) -> Tensor:
        yes, no = self.answers
        return logits[:, yes] - logits[:, no]
