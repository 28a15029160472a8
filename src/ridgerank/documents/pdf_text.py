"""A PDF page's text layer in reading order. The caller holds pdfium's lock.

pdfium gives characters with boxes, in the order in which the file paints them. Words are made of characters
that follow each other there; where words stand on the page decides the rest (`reading_order`).
"""

import ctypes
import math
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pypdfium2
import pypdfium2.raw as pdfium

from ridgerank.documents.reading_order import (
    HYPHEN,
    TextBox,
    sort_in_reading_order,
    write_in_reading_order,
)

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


@dataclass(frozen=True, slots=True)
class _Character:
    """One character, its box in the coordinates of the displayed page."""

    text: str
    left: float
    top: float
    right: float
    bottom: float
    turned: bool
    """Written upwards, downwards or upside down."""


def _split_words(page: pypdfium2.PdfPage, text_page: pypdfium2.PdfTextPage) -> Iterator[list[_Character]]:
    """Group characters into words, in the file's order."""
    word: list[_Character] = []
    for character in _visible_characters(page, text_page):
        if word and (character is None or not _continues_word(word[-1], character)):
            yield word
            word = []
        if character is not None:
            word.append(character)
    if word:
        yield word


def _continues_word(previous: _Character, character: _Character) -> bool:
    if previous.turned or character.turned:
        return previous.turned and character.turned
    height = max(previous.bottom - previous.top, character.bottom - character.top)
    beside = min(previous.bottom, character.bottom) - max(previous.top, character.top) > 0.3 * height
    # The letters of a ligature share one box.
    return beside and -1.2 * height < character.left - previous.right < _WORD_GAP * height


def _word_text(word: list[_Character]) -> str:
    text = "".join(character.text for character in word)
    return clean_text(text) + (HYPHEN if text.endswith(HYPHEN) else "")


def _word_box(word: list[_Character]) -> TextBox:
    return TextBox(
        _word_text(word),
        min(character.left for character in word),
        min(character.top for character in word),
        max(character.right for character in word),
        max(character.bottom for character in word),
    )


def _visible_characters(
    page: pypdfium2.PdfPage, text_page: pypdfium2.PdfTextPage
) -> Iterator[_Character | None]:
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
        yield _Character(text, *corners, turned)


def _rotate_box(
    left: float, top: float, right: float, bottom: float, quarters: int
) -> tuple[float, float, float, float]:
    """Coordinates of a box after the page is turned clockwise by quarters of a circle."""
    for _ in range(quarters):
        left, top, right, bottom = -bottom, left, -top, right
    return left, top, right, bottom
