"""Pieces of text with boxes become text as one would read it: columns apart, table rows in one line.

A page is cut where white space runs through it: first at a gutter between columns of running text, else at
its widest horizontal gap, and so on inside the parts (a recursive X-Y cut). What cannot be cut is read row
by row; where neighbouring rows fall into cells they are written as a table, `| cell | cell |`. Pure
geometry: knows neither PDF nor OCR. Boxes have their origin at the top left, y downwards.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import median

HYPHEN = "\u0002"
"""Stands at the end of a piece whose last word goes on in the next line."""
_GUTTER = 0.9
"""Least width of white space between columns, in heights of a letter."""
_CELL_GAP = 1.6
"""Least width of white space between two cells of a row, in heights of a letter."""
_PROSE_FILL = 0.55
"""A column of running text fills this share of its width on the average line; a table's does not."""
_PROSE_ROWS = 3


@dataclass(frozen=True, slots=True)
class Piece:
    """A word, or a line as OCR gives it, and where it stands."""

    text: str
    left: float
    top: float
    right: float
    bottom: float

    @property
    def height(self) -> float:
        """From top to bottom."""
        return self.bottom - self.top


Row = list[Piece]


def read_in_order(pieces: Sequence[Piece]) -> str:
    """The text of a page, line by line; a blank line between its parts."""
    present = [piece for piece in pieces if piece.text.strip(f" {HYPHEN}")]
    if not present:
        return ""
    letter = median(piece.height for piece in present)
    parts = [_write(rows_of(part), letter) for part in _cut(present, letter)]
    return "\n\n".join(part for part in parts if part)


def rows_of(pieces: Sequence[Piece]) -> list[Row]:
    """Pieces that stand beside each other, rows from the top down, each from left to right.

    A piece joins the row whose vertical extent it shares by more than half of the smaller height.
    """
    rows: list[Row] = []
    extents: list[tuple[float, float]] = []
    for piece in sorted(pieces, key=lambda piece: (piece.top + piece.bottom, piece.left)):
        # Only the last rows can be beside it: pieces come in the order of their middles.
        for number in range(len(rows) - 1, max(-1, len(rows) - 4), -1):
            top, bottom = extents[number]
            shared = min(bottom, piece.bottom) - max(top, piece.top)
            if shared > 0.5 * min(bottom - top, piece.height):
                rows[number].append(piece)
                break
        else:
            rows.append([piece])
            extents.append((piece.top, piece.bottom))
    return [sorted(row, key=lambda piece: piece.left) for row in rows]


def _cut(pieces: list[Piece], letter: float) -> list[list[Piece]]:
    """The parts of a page in reading order."""
    waiting, done = [pieces], []
    while waiting:  # recursion would run out on a page of a thousand rows
        part = waiting.pop()
        halves = _columns(part, letter) or _bands(part, letter)
        if halves is None:
            done.append(part)
        else:
            waiting += reversed(halves)
    return done


def _columns(pieces: list[Piece], letter: float) -> tuple[list[Piece], list[Piece]] | None:
    """Left and right of the widest gutter between two columns of running text."""
    gaps = _gaps([(piece.left, piece.right) for piece in pieces], least=_GUTTER * letter)
    for _, middle in sorted(gaps, reverse=True):
        left = [piece for piece in pieces if piece.right <= middle]
        right = [piece for piece in pieces if piece.right > middle]
        if _is_prose(left, letter) and _is_prose(right, letter):
            return left, right
    return None


def _bands(pieces: list[Piece], letter: float) -> tuple[list[Piece], list[Piece]] | None:
    """Above and below the widest horizontal gap that is more than the space between lines."""
    gaps = _gaps([(piece.top, piece.bottom) for piece in pieces], least=0.8 * letter)
    if not gaps:
        return None
    _, middle = max(gaps)
    return [p for p in pieces if p.bottom <= middle], [p for p in pieces if p.bottom > middle]


def _gaps(extents: list[tuple[float, float]], *, least: float) -> list[tuple[float, float]]:
    """Width and middle of every stretch that no extent covers."""
    gaps, reached = [], math.inf
    for start, end in sorted(extents):
        if start - reached >= least:
            gaps.append((start - reached, (start + reached) / 2))
        reached = end if reached == math.inf else max(reached, end)
    return gaps


def _is_prose(pieces: list[Piece], letter: float) -> bool:
    rows = rows_of(pieces)
    if len(rows) < _PROSE_ROWS:
        return False
    width = max(p.right for p in pieces) - min(p.left for p in pieces)
    filled = sum(sum(p.right - p.left for p in row) for row in rows) / len(rows)
    # A column of numbers fills its width too, but its width is a few letters.
    return filled >= _PROSE_FILL * width and width >= 12 * letter


def _write(rows: list[Row], letter: float) -> str:
    """Rows as lines; two or more neighbouring rows of several cells as a table."""
    cells = [_cells(row, letter) for row in rows]
    lines: list[str] = []
    for several, group in groupby(cells, key=lambda found: len(found) > 1):
        found = list(group)
        if several and len(found) > 1:
            lines += [f"| {' | '.join(each)} |" for each in found]
        else:
            lines += ["  ".join(each) for each in found]
    return _joined(lines)


def _cells(row: Row, letter: float) -> list[str]:
    cells = [[row[0].text]]
    for before, piece in pairwise(row):
        if piece.left - before.right > _CELL_GAP * letter:
            cells.append([])
        cells[-1].append(piece.text)
    return [" ".join(words) for words in cells]


def _joined(lines: list[str]) -> str:
    """Lines below each other; a word divided at the end of one is made whole."""
    text = ""
    for line in lines:
        text = text.removesuffix(HYPHEN) + line if text.endswith(HYPHEN) else f"{text}\n{line}"
    return text.replace(HYPHEN, "").strip("\n")
