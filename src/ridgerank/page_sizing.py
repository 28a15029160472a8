"""The size an image processor gives a page, so that whoever reads a large image resizes it once."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class PageSizing(ABC):
    """What an image processor does to the size of a page."""

    max_pixels: int
    """The pixel budget: an image of no more is left to the processor."""
    resample: int

    @abstractmethod
    def processed_size(self, width: int, height: int) -> tuple[int, int]:
        """The width and height to which the processor resizes a page first."""

    def reading_size(self, width: int, height: int) -> tuple[int, int] | None:
        """The size to read an image in, None if it is within the budget or only the processor can tell."""
        if width * height <= self.max_pixels:
            return None
        size = self.processed_size(width, height)
        return size if self.processed_size(*size) == size else None


@dataclass(frozen=True, slots=True)
class PatchSizing(PageSizing):
    """Qwen2.5-VL and GLM-4.1V: sides of whole patches, the area between two bounds."""

    bounds: tuple[int, int]
    """The smallest and the largest area, as the processor counts it."""
    multiple: int
    """Side of what becomes one visual token."""
    frames: int = 1
    """How often the processor counts the pixels of a still image."""

    def processed_size(self, width: int, height: int) -> tuple[int, int]:
        """Each side rounded to whole patches; both scaled first where the area is out of bounds."""
        sides = (width, height)
        smallest, largest = self.bounds
        columns, rows = (round(side / self.multiple) * self.multiple for side in sides)
        area = self.frames * width * height
        if self.frames * columns * rows > largest:
            shrink = math.sqrt(area / largest)
            columns, rows = (
                max(self.multiple, math.floor(side / shrink / self.multiple) * self.multiple)
                for side in sides
            )
        elif self.frames * columns * rows < smallest:
            enlarge = math.sqrt(smallest / area)
            columns, rows = (math.ceil(side * enlarge / self.multiple) * self.multiple for side in sides)
        return columns, rows

    def reading_size(self, width: int, height: int) -> tuple[int, int] | None:
        """As of any sizing; a side below one patch is left to the processor."""
        return None if min(width, height) < self.multiple else PageSizing.reading_size(self, width, height)


@dataclass(frozen=True, slots=True)
class EdgeSizing(PageSizing):
    """Idefics3 and SmolVLM: the longer side as long as set, the other one even; tiles are cut afterwards."""

    longest_edge: int

    def processed_size(self, width: int, height: int) -> tuple[int, int]:
        """The longer side is `longest_edge`, the other one keeps the shape."""
        shape = width / height
        if width >= height:
            return self.longest_edge, _even(int(self.longest_edge / shape))
        return _even(int(self.longest_edge * shape)), self.longest_edge


def _even(side: int) -> int:
    return max(1, side + side % 2)


PixelBudget: TypeAlias = int | PageSizing
"""How large a page is read: just within so many pixels, or as an image processor would have it."""


def count_budget(budget: PixelBudget) -> int:
    """The pixels of a budget."""
    return budget.max_pixels if isinstance(budget, PageSizing) else budget
