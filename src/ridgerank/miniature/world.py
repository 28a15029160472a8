"""The records of the miniature: a page as the facts it states and as the words on its grid of cells.

Knows nothing of PDF, fonts or colours; a cell is 28 pixels wide and high, one visual token of the backbones.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from ridgerank.miniature.styles import Ink, Role, Style

CELL_PIXELS = 28
COLUMNS = 12
ROWS = 16
WIDTH_PIXELS, HEIGHT_PIXELS = COLUMNS * CELL_PIXELS, ROWS * CELL_PIXELS
"""One pixel is one PDF point: a page is rendered at scale 1."""

Pair: TypeAlias = tuple[str, str]
"""An entity and a measure that belong together."""
Topic: TypeAlias = tuple[str, str]
"""A field and a subject that stand side by side: `solar storage`."""
Form: TypeAlias = Literal["bullet", "table", "chart"]
Shape: TypeAlias = Literal["box", "line", "dot"]


@dataclass(frozen=True, slots=True)
class Fact:
    """What a page says: in this year this entity had this value of this measure."""

    entity: str
    measure: str
    year: str
    value: int
    form: Form
    """How the page says it."""


@dataclass(frozen=True, slots=True)
class PlacedWord:
    """A word and the cells it covers: `width_cells` of one row, from `column` on."""

    word: str
    row: int
    column: int
    width_cells: int
    role: Role
    """What the word is on its page; the style gives every role a typeface and a colour."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A drawn shape that is no word; pixels from the upper left corner."""

    shape: Shape
    points: tuple[float, ...]
    """`box`: left, top, right, bottom. `line`: x, y, x, y, ... `dot`: x, y, radius."""
    ink: Ink


@dataclass(frozen=True, slots=True)
class PlannedPage:
    """A page before it is drawn: everything it says and shows."""

    layout: str
    topic: Topic
    """The title."""
    mentions: tuple[Topic, ...]
    """Topics of its lines of text."""
    facts: tuple[Fact, ...]
    words: tuple[PlacedWord, ...]
    marks: tuple[Mark, ...]
    style: Style

    def has_word(self, word: str) -> bool:
        """Whether the word stands anywhere on the page."""
        return any(placed.word == word for placed in self.words)
