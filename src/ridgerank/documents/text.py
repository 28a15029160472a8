"""The text of a page: the words of a PDF's text layer and their boxes, put in reading order."""

import ctypes
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import median

import pypdfium2
import pypdfium2.raw as pdfium

HYPHEN = "\u0002"
"""Marks the end of a box whose last word goes on in the next line."""
_GUTTER = 0.9
"""Least width of white space between columns, in heights of a letter."""
_CELL_GAP = 1.6
"""Least width of white space between two cells of a row, in heights of a letter."""
_PROSE_FILL = 0.55
"""A column of running text fills this share of its width on the average line; a table's does not."""
_PROSE_ROWS = 3
_REACH = 400
"""Characters within which the next word is looked for: what the text leaves out is shorter."""


@dataclass(frozen=True, slots=True)
class TextBox:
    """A character, a word, or a line as OCR gives it, and where it stands."""

    text: str
    left: float
    top: float
    right: float
    bottom: float
    turned: bool = False
    """Written upwards, downwards or upside down."""

    @property
    def height(self) -> float:
        """From top to bottom."""
        return self.bottom - self.top


def surround(boxes: Sequence[TextBox], text: str = "") -> TextBox:
    """The smallest box around others."""
    return TextBox(
        text,
        min(box.left for box in boxes),
        min(box.top for box in boxes),
        max(box.right for box in boxes),
        max(box.bottom for box in boxes),
    )


Row = list[TextBox]


def write_in_reading_order(boxes: Sequence[TextBox]) -> str:
    """The text of a page, line by line; a blank line between its parts."""
    parts, letter_height = _split_parts(boxes)
    return "\n\n".join(filter(None, (_write_rows(rows, letter_height) for rows in parts)))


def sort_in_reading_order(boxes: Sequence[TextBox]) -> list[TextBox]:
    """The boxes that have text, in the order in which `write_in_reading_order` writes them."""
    return [box for rows in _split_parts(boxes)[0] for row in rows for box in row]


def group_rows(boxes: Sequence[TextBox]) -> list[Row]:
    """Boxes that share half of the smaller height: rows from the top down, each from left to right."""
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


def _split_parts(boxes: Sequence[TextBox]) -> tuple[list[list[Row]], float]:
    """The rows of each part of a page, in reading order, and the height of a letter."""
    boxes_with_text = [box for box in boxes if box.text.strip(f" {HYPHEN}")]
    letter_height = median([box.height for box in boxes_with_text] or [0.0])
    pending, parts = [boxes_with_text] if boxes_with_text else [], []
    while pending:  # recursion would run out on a page of a thousand rows
        part = pending.pop()
        halves = _split_columns(part, letter_height) or _split_bands(part, letter_height)
        if halves is None:
            parts.append(group_rows(part))
        else:
            pending += reversed(halves)
    return parts, letter_height


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


@dataclass(frozen=True, slots=True)
class BoxedWord:
    """A word of a page's text: `text[start:end]`, and where it stands on the page."""

    start: int
    end: int
    box: TextBox


def match_words(text: str, boxes: Sequence[TextBox]) -> Iterator[BoxedWord]:
    """Look each word up in the text, after the one before; words the text does not have are left out."""
    end = 0
    for box in boxes:
        start = text.find(box.text, end, end + _REACH + len(box.text)) if box.text else -1
        if start >= 0:
            end = start + len(box.text)
            yield BoxedWord(start, end, box)


def split_line(line: TextBox, size: tuple[int, int]) -> list[TextBox]:
    """The words of a recognized line, as if all its characters were equally wide; `size` is the page's."""
    width, height = size
    edges = [-1, *(index for index, sign in enumerate(line.text) if sign == " "), len(line.text)]
    step = (line.right - line.left) / max(len(line.text), 1)
    return [
        TextBox(
            line.text[before + 1 : after],
            (line.left + step * (before + 1)) / width,
            line.top / height,
            (line.left + step * after) / width,
            line.bottom / height,
        )
        for before, after in pairwise(edges)
        if after > before + 1
    ]


_NOT_TEXT = re.compile("[^\n\t\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_HYPHENS = frozenset({0x02, 0xFFFE})
"""pdfium's marks for a hyphen at the end of a line, which divides a word."""
_WORD_GAP = 0.25
"""White space between two letters of a word stays below this, in heights of a letter."""


def page_text(page: pypdfium2.PdfPage) -> str:
    """Extract the text inside the visible page; printer's marks beside it are left out."""
    with closing(page.get_textpage()) as text_page:
        words = list(_split_words(page, text_page))
    upright = write_in_reading_order([_word_box(word) for word in words if not word[0].turned])
    # Text up a margin or across a chart's axis would fall into the rows it runs past: it comes last.
    turned = " ".join(_word_text(word).removesuffix(HYPHEN) for word in words if word[0].turned)
    return "\n\n".join(part for part in (upright, turned) if part)


def page_words(page: pypdfium2.PdfPage) -> list[TextBox]:
    """The words of `page_text` in its order; boxes are fractions of the displayed page's width and height."""
    with closing(page.get_textpage()) as text_page:
        words = list(_split_words(page, text_page))
    upright = sort_in_reading_order([_word_box(word) for word in words if not word[0].turned])
    turned = [_word_box(word) for word in words if word[0].turned]
    left, bottom, right, top = page.get_bbox()
    corner = _rotate_box(left, -top, right, -bottom, page.get_rotation() // 90)
    width, height = corner[2] - corner[0], corner[3] - corner[1]
    return [
        TextBox(
            box.text.removesuffix(HYPHEN),
            (box.left - corner[0]) / width,
            (box.top - corner[1]) / height,
            (box.right - corner[0]) / width,
            (box.bottom - corner[1]) / height,
        )
        for box in (*upright, *turned)
    ]


def clean_text(text: str) -> str:
    """Remove what stores refuse: NULs and other control characters, lone surrogates."""
    return _NOT_TEXT.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def _split_words(page: pypdfium2.PdfPage, text_page: pypdfium2.PdfTextPage) -> Iterator[list[TextBox]]:
    """Group characters into words, in the file's order."""
    word: list[TextBox] = []
    for character in _visible_characters(page, text_page):
        if word and (character is None or not _continues_word(word[-1], character)):
            yield word
            word = []
        if character is not None:
            word.append(character)
    if word:
        yield word


def _continues_word(previous: TextBox, character: TextBox) -> bool:
    if previous.turned or character.turned:
        return previous.turned and character.turned
    height = max(previous.height, character.height)
    beside = min(previous.bottom, character.bottom) - max(previous.top, character.top) > 0.3 * height
    # The letters of a ligature share one box.
    return beside and -1.2 * height < character.left - previous.right < _WORD_GAP * height


def _word_text(word: list[TextBox]) -> str:
    text = "".join(character.text for character in word)
    return clean_text(text) + (HYPHEN if text.endswith(HYPHEN) else "")


def _word_box(word: list[TextBox]) -> TextBox:
    return surround(word, _word_text(word))


def _visible_characters(
    page: pypdfium2.PdfPage, text_page: pypdfium2.PdfTextPage
) -> Iterator[TextBox | None]:
    """Visible characters in the file's order; None where a word ends."""
    left, bottom, right, top = page.get_bbox()
    quarters = page.get_rotation() // 90
    box = pdfium.FS_RECTF()
    lead = 0
    for index in range(pdfium.FPDFText_CountChars(text_page)):
        code = pdfium.FPDFText_GetUnicode(text_page, index)
        if 0xD800 <= code < 0xDC00:  # the first half of a character beyond 16 bits
            lead = code
            continue
        if lead and 0xDC00 <= code < 0xE000:
            code = 0x10000 + ((lead - 0xD800) << 10) + (code - 0xDC00)
        lead = 0
        text = HYPHEN if code in _HYPHENS else chr(code)
        # Characters that pdfium generates are blanks and line ends; of these only the hyphen is kept.
        generated = pdfium.FPDFText_IsGenerated(text_page, index) == 1 and text != HYPHEN
        if generated or code == 0 or text.isspace():
            yield None
            continue
        if not pdfium.FPDFText_GetLooseCharBox(text_page, index, ctypes.byref(box)):
            continue
        x, y = (box.left + box.right) / 2, (box.top + box.bottom) / 2
        if not (left <= x <= right and bottom <= y <= top):
            yield None
            continue
        corners = _rotate_box(box.left, -box.top, box.right, -box.bottom, quarters)
        # Angles count clockwise, and so does the rotation of the page.
        angle = pdfium.FPDFText_GetCharAngle(text_page, index) + quarters * math.pi / 2
        turned = abs(math.remainder(angle, 2 * math.pi)) > 0.1
        yield TextBox(text, *corners, turned)


def _rotate_box(
    left: float, top: float, right: float, bottom: float, quarters: int
) -> tuple[float, float, float, float]:
    """Coordinates of a box after the page is turned clockwise by quarters of a circle."""
    for _ in range(quarters):
        left, top, right, bottom = -bottom, left, -top, right
    return left, top, right, bottom
