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

from ridgerank.documents.reading_order import HYPHEN, Piece, read_in_order

_NOT_TEXT = re.compile("[^\n\t\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_HYPHENS = frozenset({0x02, 0xFFFE})
"""pdfium's marks for a hyphen at the end of a line, which divides a word."""
_WORD_GAP = 0.25
"""White space between two letters of a word stays below this, in heights of a letter."""


def page_text(page: pypdfium2.PdfPage) -> str:
    """Take the text inside the visible page; printer's marks beside it are left out."""
    with closing(page.get_textpage()) as text_page:
        words = list(_words(page, text_page))
    upright = read_in_order([_piece(word) for word in words if not word[0].turned])
    # Text up a margin or across a chart's axis would fall into the rows it runs past: it comes last.
    turned = " ".join(_text(word).removesuffix(HYPHEN) for word in words if word[0].turned)
    return "\n\n".join(part for part in (upright, turned) if part)


def clean(text: str) -> str:
    """Text without what stores refuse: NULs and other controls, lone surrogates."""
    return _NOT_TEXT.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


@dataclass(frozen=True, slots=True)
class _Sign:
    """One character, upright as people see the page."""

    text: str
    left: float
    top: float
    right: float
    bottom: float
    turned: bool
    """Written upwards, downwards or upside down."""


def _words(page: pypdfium2.PdfPage, text_page: pypdfium2.PdfTextPage) -> Iterator[list[_Sign]]:
    """Characters that belong together, in the file's order."""
    word: list[_Sign] = []
    for sign in _signs(page, text_page):
        if word and (sign is None or not _continues(word[-1], sign)):
            yield word
            word = []
        if sign is not None:
            word.append(sign)
    if word:
        yield word


def _continues(before: _Sign, sign: _Sign) -> bool:
    if before.turned or sign.turned:
        return before.turned and sign.turned
    height = max(before.bottom - before.top, sign.bottom - sign.top)
    beside = min(before.bottom, sign.bottom) - max(before.top, sign.top) > 0.3 * height
    # The letters of a ligature share one box.
    return beside and -1.2 * height < sign.left - before.right < _WORD_GAP * height


def _text(word: list[_Sign]) -> str:
    text = "".join(sign.text for sign in word)
    return clean(text) + (HYPHEN if text.endswith(HYPHEN) else "")


def _piece(word: list[_Sign]) -> Piece:
    return Piece(
        _text(word),
        min(sign.left for sign in word),
        min(sign.top for sign in word),
        max(sign.right for sign in word),
        max(sign.bottom for sign in word),
    )


def _signs(page: pypdfium2.PdfPage, text_page: pypdfium2.PdfTextPage) -> Iterator[_Sign | None]:
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
        # What pdfium has made up are blanks and line ends; the hyphen is the only mark of its own to keep.
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
        corners = _upright(box.left, -box.top, box.right, -box.bottom, quarters)
        # Angles count clockwise, and so does the rotation of the page.
        angle = pdfium.FPDFText_GetCharAngle(text_page, index) + quarters * math.pi / 2
        turned = abs(math.remainder(angle, 2 * math.pi)) > 0.1
        yield _Sign(text, *corners, turned)


def _upright(
    left: float, top: float, right: float, bottom: float, quarters: int
) -> tuple[float, float, float, float]:
    """A box as it is seen once the page is turned clockwise by quarters of a circle."""
    for _ in range(quarters):
        left, top, right, bottom = -bottom, left, -top, right
    return left, top, right, bottom
