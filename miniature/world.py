"""The records of the miniature: how a page looks, the facts it states, and the words on its grid of cells.

Knows nothing of PDF; a cell is 28 pixels wide and high, one visual token of the backbones. Colours stay dark
on light, and sizes are the largest at which every word fits its cells in every typeface.
"""

from dataclasses import dataclass
from random import Random
from typing import Literal, TypeAlias

Role: TypeAlias = Literal["title", "heading", "name", "body", "note"]
Ink: TypeAlias = Literal["accent", "second", "third", "rule", "tint"]

MIN_SHIFT_X, MAX_SHIFT_X, MAX_SHIFT_Y = 2, 4, 2
"""Pixels by which a page lies off its grid: words start near a cell's edge, not always at the same place.
At least 2 to the right, because an italic f leans out to the left."""


@dataclass(frozen=True, slots=True)
class Face:
    """A family of the typefaces that every PDF reader has."""

    regular: str
    bold: str
    oblique: str
    size: int
    """Points of text that is two cells wide."""
    title_size: int
    """Points of a title, three cells a word."""


HELVETICA = Face("Helvetica", "Helvetica-Bold", "Helvetica-Oblique", size=14, title_size=19)
TIMES = Face("Times-Roman", "Times-Bold", "Times-Italic", size=15, title_size=21)
COURIER = Face("Courier", "Courier-Bold", "Courier-Oblique", size=12, title_size=18)
FACES = (HELVETICA, TIMES, COURIER)


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours of a document, as 0xRRGGBB."""

    paper: int
    title: int
    text: int
    accent: int
    second: int
    third: int
    rule: int
    tint: int


PALETTES = (
    Palette(0xFFFFFF, 0x1F3A5F, 0x222222, 0x2F6DB5, 0xE08A1E, 0x5A9E4B, 0x8899AA, 0xE3ECF6),
    Palette(0xFFFFFF, 0x111111, 0x111111, 0x444444, 0x888888, 0xB5B5B5, 0x333333, 0xEEEEEE),
    Palette(0xFFFDF5, 0x6B2D1A, 0x2B2320, 0xB5502F, 0x3F7F86, 0xD9A441, 0xB09A88, 0xF5E8DA),
    Palette(0xFFFFFF, 0x14532D, 0x1C2A22, 0x2E8B57, 0x7A5BA6, 0xD98032, 0x94A89B, 0xE2F1E6),
    Palette(0xF8FAFF, 0x3B1F6B, 0x25213A, 0x6A4FC3, 0xC94F7C, 0x3C9DB0, 0xA39FBD, 0xEAE6F8),
    Palette(0xFFFFFF, 0x7A0019, 0x1E1E1E, 0xA6192E, 0x5B6770, 0xE0A526, 0x9A9A9A, 0xF7E6E8),
)


@dataclass(frozen=True, slots=True)
class Style:
    """The look of one page."""

    face: Face
    palette: Palette
    title_band: bool
    """Whether the title stands on a tinted band, rather than above a rule."""
    shift: tuple[int, int]
    """Pixels right and down."""
    speckles: int
    """Specks of dust, as a scanner leaves them."""
    speckle_seed: int


def draw_style(generator: Random, *, scanned: float) -> Style:
    """A look for a document; `scanned` is the share of documents that went through a scanner."""
    return Style(
        face=generator.choice(FACES),
        palette=generator.choice(PALETTES),
        title_band=generator.random() < 0.5,
        shift=draw_shift(generator),
        speckles=generator.randrange(40, 160) if generator.random() < scanned else 0,
        speckle_seed=generator.randrange(1 << 30),
    )


def draw_shift(generator: Random) -> tuple[int, int]:
    """A place for a page on its grid."""
    return generator.randint(MIN_SHIFT_X, MAX_SHIFT_X), generator.randint(-MAX_SHIFT_Y, MAX_SHIFT_Y)


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
