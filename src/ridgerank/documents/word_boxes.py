"""Where the words of a page's text stand on the page: from its text layer, or from OCR where that read it.

Boxes are fractions of the page's width and height. A stored text has no boxes: they are read again from the
document, and matched with the text word by word, in reading order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise

from ridgerank.documents.images import read_image
from ridgerank.documents.ocr import OCR_PIXELS, Recognizer, has_little_text
from ridgerank.documents.pdf import PdfReader
from ridgerank.documents.render import PageRef
from ridgerank.documents.text import TextBox, sort_in_reading_order

KEPT_PAGES = 128
"""Pages whose boxes stay in memory."""
_REACH = 400
"""Characters within which the next word is looked for: what the text leaves out is shorter."""


@dataclass(frozen=True, slots=True)
class BoxedWord:
    """A word of a page's text."""

    start: int
    end: int
    """Its first character in the text, and one past its last."""
    box: TextBox


@lru_cache(maxsize=KEPT_PAGES)
def place_words(ref: PageRef, text: str) -> tuple[BoxedWord, ...]:
    """The words of a page's text that are recognized on the page, in the order of the text."""
    return tuple(match_words(text, _read_words(ref)))


def match_words(text: str, boxes: Sequence[TextBox]) -> Iterator[BoxedWord]:
    """Look each word up in the text, behind the one before; words the text does not have are left out."""
    behind = 0
    for box in boxes:
        start = text.find(box.text, behind, behind + _REACH + len(box.text)) if box.text else -1
        if start >= 0:
            behind = start + len(box.text)
            yield BoxedWord(start, behind, box)


def _read_words(ref: PageRef) -> list[TextBox]:
    with PdfReader() as pdfs:
        if ref.source.is_pdf:
            words = pdfs.words(ref.source.path, ref.number)
            if not has_little_text(" ".join(word.text for word in words)):
                return words
            image, _ = pdfs.read(ref.source.path, ref.number, max_pixels=OCR_PIXELS)
        else:
            image = read_image(ref.source.path, ref.number, max_pixels=OCR_PIXELS)
    lines = sort_in_reading_order(_recognizer().lines(image))
    return [word for line in lines for word in split_line(line, image.size)]


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


@cache
def _recognizer() -> Recognizer:
    return Recognizer()
