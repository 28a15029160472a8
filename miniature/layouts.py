"""The kinds of page, slides, reports with tables, charts and mixtures, and the blocks they are made of.

A block writes words and marks on a `Board` and notes the facts they state. Words stand in columns 1 to 10;
what belongs together stands on one row, side by side.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random

from miniature.vocabulary import ENTITY_LINES, HEADINGS, MEASURE_LINES, PLAIN_LINES, TOPIC_LINES, Theme
from miniature.world import (
    CELL_PIXELS,
    COLUMNS,
    Fact,
    Form,
    Ink,
    Mark,
    Pair,
    PlacedWord,
    PlannedPage,
    Role,
    Shape,
    Style,
    Topic,
)

LEFT = 1
"""The first column of text; column 0 is the margin, where bullets and swatches are."""
PAIR_CELLS, YEAR_CELLS = 4, 2
MAX_VALUE, AXIS_LABELS = 90, (90, 60, 30)
SERIES_INKS: tuple[Ink, ...] = ("accent", "second", "third")


def width_cells(word: str, role: Role) -> int:
    """How many cells a word takes: one up to three letters, two otherwise, three in a title."""
    if role == "title":
        return 3
    return 1 if len(word) <= 3 else 2


class Board:
    """A page in the making."""

    def __init__(self, theme: Theme, style: Style, generator: Random) -> None:
        self.theme, self.style, self.generator = theme, style, generator
        self.topic: Topic = generator.choice(theme.topics)
        self._mentions: list[Topic] = []
        self._facts: list[Fact] = []
        self._words: list[PlacedWord] = []
        self._marks: list[Mark] = []

    def put(self, text: str, row: int, column: int, role: Role = "body") -> None:
        """Write words side by side."""
        for word in text.split():
            cells = width_cells(word, role)
            self._words.append(PlacedWord(word, row, column, cells, role))
            column += cells

    def state(self, pair: Pair, year: str, form: Form) -> int:
        """Note a fact; its value, for the block to show."""
        value = self.generator.randint(10, MAX_VALUE)
        self._facts.append(Fact(*pair, year, value, form))
        return value

    def mention(self, topic: Topic) -> None:
        """Note that a line of text names a topic."""
        self._mentions.append(topic)

    def box(self, left: float, top: float, right: float, bottom: float, ink: Ink) -> None:
        """A filled rectangle; here and below in cells from the upper left corner."""
        self._mark("box", (left, top, right, bottom), ink)

    def line(self, points: Sequence[tuple[float, float]], ink: Ink) -> None:
        """A line through points."""
        self._mark("line", tuple(value for point in points for value in point), ink)

    def dot(self, x: float, y: float, radius: float, ink: Ink) -> None:
        """A filled circle."""
        self._mark("dot", (x, y, radius), ink)

    def _mark(self, shape: Shape, cells: tuple[float, ...], ink: Ink) -> None:
        self._marks.append(Mark(shape, tuple(round(value * CELL_PIXELS, 2) for value in cells), ink))

    def finish(self, layout: str) -> PlannedPage:
        """The page as planned."""
        return PlannedPage(
            layout,
            self.topic,
            tuple(dict.fromkeys(self._mentions)),
            tuple(self._facts),
            tuple(self._words),
            tuple(self._marks),
            self.style,
        )


def title(board: Board, row: int) -> None:
    """The topic, large, on a band or above a rule."""
    if board.style.title_band:
        board.box(-1, row - 0.15, COLUMNS + 1, row + 1.15, "tint")
    else:
        board.line([(LEFT, row + 1.15), (COLUMNS - 1, row + 1.15)], "accent")
    board.put(" ".join(board.topic), row, LEFT, "title")


def sentence(board: Board, row: int, column: int = LEFT) -> None:
    """A line of text; it may name a topic (every other one does), an entity or a measure of the document."""
    generator, theme = board.generator, board.theme
    lines = generator.choices((TOPIC_LINES, ENTITY_LINES, MEASURE_LINES, PLAIN_LINES), (5, 2, 1, 2))[0]
    topic = generator.choice(theme.topics)
    if lines is TOPIC_LINES:
        board.mention(topic)
    text = generator.choice(lines).format(
        topic=" ".join(topic),
        entity=generator.choice(theme.entities),
        measure=generator.choice(theme.measures),
    )
    board.put(text, row, column, "note")


def bullets(board: Board, rows: Sequence[int]) -> None:
    """Facts, one a row: entity, measure, year and value side by side."""
    for row, pair in zip(rows, pairs(board, len(rows)), strict=True):
        year = board.generator.choice(board.theme.years)
        board.dot(0.65, row + 0.5, 0.12, "accent")
        _put_pair(board, pair, row)
        board.put(f"{year} {board.state(pair, year, 'bullet')}", row, LEFT + PAIR_CELLS)


def table(board: Board, top: int, count: int) -> None:
    """A header of years over `count` rows of entity, measure and a value for each year."""
    years = sorted(board.generator.sample(board.theme.years, 3))
    board.box(LEFT - 0.2, top, COLUMNS - 0.8, top + 1, "tint")
    _put_years(board, years, top, LEFT + PAIR_CELLS)
    for row, pair in enumerate(pairs(board, count), start=top + 1):
        _put_pair(board, pair, row)
        for number, year in enumerate(years):
            column = LEFT + PAIR_CELLS + YEAR_CELLS * number
            board.put(str(board.state(pair, year, "table")), row, column)
        board.line([(LEFT - 0.2, row + 1), (COLUMNS - 0.8, row + 1)], "rule")


def chart(board: Board, top: int, *, series: int, height: int) -> None:
    """A legend of `series` rows over a plot with labelled axes, `height` (3 or 6) rows high."""
    years = sorted(board.generator.sample(board.theme.years, board.generator.choice((3, 4))))
    plot, left = top + series, LEFT + 2
    bottom, right = plot + height, COLUMNS - 1
    step = height // len(AXIS_LABELS)
    for number, label in enumerate(AXIS_LABELS):
        row = plot + step * number
        board.line([(left, row), (right, row)], "tint")
        board.put(str(label), row, LEFT)
    draw_series = board.generator.choice((_draw_bars, _draw_line))
    for number, pair in enumerate(pairs(board, series)):
        board.box(0.45, top + number + 0.3, 0.85, top + number + 0.7, SERIES_INKS[number])
        _put_pair(board, pair, top + number)
        tips = [
            (
                left + YEAR_CELLS * (column + 0.5),
                bottom - height * board.state(pair, year, "chart") / MAX_VALUE,
            )
            for column, year in enumerate(years)
        ]
        draw_series(board, tips, bottom, number, series)
    board.line([(left, plot), (left, bottom), (right, bottom)], "rule")
    _put_years(board, years, bottom, left)


def _draw_bars(board: Board, tips: list[tuple[float, float]], bottom: int, number: int, series: int) -> None:
    breadth = 1.4 / series
    for x, y in tips:
        start = x - 0.7 + breadth * number
        board.box(start, y, start + breadth - 0.08, bottom, SERIES_INKS[number])


def _draw_line(board: Board, tips: list[tuple[float, float]], bottom: int, number: int, series: int) -> None:
    board.line(tips, SERIES_INKS[number])
    for x, y in tips:
        board.dot(x, y, 0.13, SERIES_INKS[number])


def footer(board: Board, number: int) -> None:
    """The page number, below everything."""
    board.line([(LEFT, 15), (COLUMNS - 1, 15)], "rule")
    board.put(str(number), 15, COLUMNS - 2)


def pairs(board: Board, count: int) -> list[Pair]:
    """Pairs of the document, no two alike on one block."""
    return board.generator.sample(board.theme.pairs, count)


def _put_pair(board: Board, pair: Pair, row: int) -> None:
    board.put(pair[0], row, LEFT, "name")
    board.put(pair[1], row, LEFT + 2)


def _put_years(board: Board, years: Sequence[str], row: int, column: int) -> None:
    board.put(" ".join(years), row, column, "heading")


def _slide(board: Board) -> None:
    """A title, a line below it, and bullets with lines of text between them."""
    generator = board.generator
    top = generator.choice((1, 2))
    title(board, top)
    sentence(board, top + 2)
    rows = range(top + 4, 14, 2)[: generator.randint(3, 5)]
    bullets(board, rows)
    for row in generator.sample(rows, 2):
        sentence(board, row + 1, 2)


def _report(board: Board) -> None:
    """A running head, a title, text, a table, text."""
    generator = board.generator
    board.put(generator.choice(HEADINGS), 0, 7, "note")
    title(board, 2)
    sentence(board, 4)
    top, rows = generator.choice((5, 6)), generator.randint(3, 6)
    table(board, top, rows)
    sentence(board, generator.randrange(top + rows + 2, 15))


def _chart(board: Board) -> None:
    """A title, a chart, text below it."""
    title(board, 1)
    chart(board, 3, series=board.generator.randint(1, 3), height=6)
    sentence(board, board.generator.choice((13, 14)))


def _mixed(board: Board) -> None:
    """A small chart or a small table, and bullets below it."""
    generator = board.generator
    title(board, 1)
    if generator.random() < 0.5:
        chart(board, 3, series=generator.randint(1, 2), height=3)
    else:
        table(board, 3, generator.randint(2, 3))
        sentence(board, 8)
    bullets(board, range(10, 14)[: generator.randint(2, 4)])
    sentence(board, 14)


LAYOUTS: Mapping[str, Callable[[Board], None]] = {
    "slide": _slide,
    "report": _report,
    "chart": _chart,
    "mixed": _mixed,
}


def plan_page(layout: str, theme: Theme, style: Style, generator: Random, *, number: int) -> PlannedPage:
    """Compose a page of the theme; `number` is printed in its footer."""
    board = Board(theme, style, generator)
    LAYOUTS[layout](board)
    footer(board, number)
    return board.finish(layout)
