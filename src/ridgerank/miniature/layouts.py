"""The kinds of page: slides, reports with tables, charts, and mixtures. Each composes blocks on a board."""

from collections.abc import Callable, Mapping
from random import Random

from ridgerank.miniature.page_blocks import Board, bullets, chart, footer, sentence, table, title
from ridgerank.miniature.styles import Style
from ridgerank.miniature.themes import Theme
from ridgerank.miniature.vocabulary import HEADINGS
from ridgerank.miniature.world import PlannedPage


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
