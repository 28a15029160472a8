"""Boxes of text become text in reading order: columns one after the other, a table row in one line.

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
"""Marks the end of a box whose last word goes on in the next line."""
_GUTTER = 0.9
"""Least width of white space between columns, in heights of a letter."""
_CELL_GAP = 1.6
"""Least width of white space between two cells of a row, in heights of a letter."""
_PROSE_FILL = 0.55
"""A column of running text fills this share of its width on the average line; a table's does not."""
_PROSE_ROWS = 3


@dataclass(frozen=True, slots=True)
class TextBox:
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


Row = list[TextBox]


def write_in_reading_order(boxes: Sequence[TextBox]) -> str:
    """The text of a page, line by line; a blank line between its parts."""
    boxes_with_text = [box for box in boxes if box.text.strip(f" {HYPHEN}")]
    if not boxes_with_text:
        return ""
    letter_height = median(box.height for box in boxes_with_text)
    parts = [_write_rows(rows, letter_height) for rows in _split_rows(boxes_with_text, letter_height)]
    return "\n\n".join(part for part in parts if part)


def sort_in_reading_order(boxes: Sequence[TextBox]) -> list[TextBox]:
    """The boxes that have text, in the order in which `write_in_reading_order` writes them."""
    boxes_with_text = [box for box in boxes if box.text.strip(f" {HYPHEN}")]
    if not boxes_with_text:
        return []
    letter_height = median(box.height for box in boxes_with_text)
    return [box for rows in _split_rows(boxes_with_text, letter_height) for row in rows for box in row]


def group_rows(boxes: Sequence[TextBox]) -> list[Row]:
    """Boxes that stand beside each other: rows from the top down, each row from left to right.

    A box joins the row whose vertical extent it shares by more than half of the smaller height.
    """
    rows: list[Row] = []
    extents: list[tuple[float, float]] = []
    for box in sorted(boxes, key=lambda box: (box.top + box.bottom, box.left)):
        # Only the last rows can be beside it: boxes come in the order of their middles.
        for number in range(len(rows) - 1, max(-1, len(rows) - 4), -1):
            top, bottom = extents[number]
            shared = min(bottom, box.bottom) - max(top, box.top)
            if shared > 0.5 * min(bottom - top, box.height):
                rows[number].append(box)
                break
        else:
            rows.append([box])
            extents.append((box.top, box.bottom))
    return [sorted(row, key=lambda box: box.left) for row in rows]


def _split_rows(boxes: list[TextBox], letter_height: float) -> list[list[Row]]:
    """The rows of each part of a page, in reading order."""
    return [group_rows(part) for part in _split_page(boxes, letter_height)]


def _split_page(boxes: list[TextBox], letter_height: float) -> list[list[TextBox]]:
    """The parts of a page in reading order."""
    pending, parts = [boxes], []
    while pending:  # recursion would run out on a page of a thousand rows
        part = pending.pop()
        halves = _split_columns(part, letter_height) or _split_bands(part, letter_height)
        if halves is None:
            parts.append(part)
        else:
            pending += reversed(halves)
    return parts


def _split_columns(boxes: list[TextBox], letter_height: float) -> tuple[list[TextBox], list[TextBox]] | None:
    """Left and right of the widest gutter between two columns of running text."""
    gaps = _find_gaps([(box.left, box.right) for box in boxes], min_width=_GUTTER * letter_height)
    for _, middle in sorted(gaps, reverse=True):
        left = [box for box in boxes if box.right <= middle]
        right = [box for box in boxes if box.right > middle]
        if _is_prose(left, letter_height) and _is_prose(right, letter_height):
            return left, right
    return None


def _split_bands(boxes: list[TextBox], letter_height: float) -> tuple[list[TextBox], list[TextBox]] | None:
    """Above and below the widest horizontal gap that is more than the space between lines."""
    gaps = _find_gaps([(box.top, box.bottom) for box in boxes], min_width=0.8 * letter_height)
    if not gaps:
        return None
    _, middle = max(gaps)
    return [p for p in boxes if p.bottom <= middle], [p for p in boxes if p.bottom > middle]


def _find_gaps(extents: list[tuple[float, float]], *, min_width: float) -> list[tuple[float, float]]:
    """Width and middle of every stretch that no extent covers."""
    gaps, covered_until = [], math.inf
    for start, end in sorted(extents):
        if start - covered_until >= min_width:
            gaps.append((start - covered_until, (start + covered_until) / 2))
        covered_until = end if covered_until == math.inf else max(covered_until, end)
    return gaps


def _is_prose(boxes: list[TextBox], letter_height: float) -> bool:
    rows = group_rows(boxes)
    if len(rows) < _PROSE_ROWS:
        return False
    width = max(p.right for p in boxes) - min(p.left for p in boxes)
    filled = sum(sum(p.right - p.left for p in row) for row in rows) / len(rows)
    # A column of numbers fills its width too, but its width is a few letters.
    return filled >= _PROSE_FILL * width and width >= 12 * letter_height


def _write_rows(rows: list[Row], letter_height: float) -> str:
    """Rows as lines; two or more neighbouring rows of several cells as a table."""
    cells = [_split_cells(row, letter_height) for row in rows]
    lines: list[str] = []
    for has_cells, group in groupby(cells, key=lambda row_cells: len(row_cells) > 1):
        neighbours = list(group)
        if has_cells and len(neighbours) > 1:
            lines += [f"| {' | '.join(row_cells)} |" for row_cells in neighbours]
        else:
            lines += ["  ".join(row_cells) for row_cells in neighbours]
    return _join_lines(lines)


def _split_cells(row: Row, letter_height: float) -> list[str]:
    cells = [[row[0].text]]
    for previous, box in pairwise(row):
        if box.left - previous.right > _CELL_GAP * letter_height:
            cells.append([])
        cells[-1].append(box.text)
    return [" ".join(words) for words in cells]


def _join_lines(lines: list[str]) -> str:
    """Lines below each other; a word divided at the end of one is made whole."""
    text = ""
    for line in lines:
        text = text.removesuffix(HYPHEN) + line if text.endswith(HYPHEN) else f"{text}\n{line}"
    return text.replace(HYPHEN, "").strip("\n")
