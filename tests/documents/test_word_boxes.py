"""Where words stand: the same words, in the same order, as the text that is stored."""

from pathlib import Path

import pytest
from reportlab.pdfgen.canvas import Canvas

from ridgerank.documents import word_boxes
from ridgerank.documents.ocr import Recognizer
from ridgerank.documents.render import PageRef, list_pages, read_pages
from ridgerank.documents.text import TextBox
from ridgerank.documents.word_boxes import place_words, split_line
from ridgerank.records import Page


def first_page(path: Path) -> tuple[PageRef, str]:
    [ref] = [item for item in list_pages([path]) if isinstance(item, PageRef)]
    [page] = [item for item in read_pages([path], max_pixels=10_000) if isinstance(item, Page)]
    return ref, page.text


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_every_word_of_the_text_is_placed_where_it_is_printed(tmp_path: Path, rotation: int) -> None:
    drawing = Canvas(str(tmp_path / "a.pdf"), pagesize=(600, 800))
    drawing.setPageRotation(rotation)
    drawing.translate(*((300, 400) if rotation % 180 == 0 else (400, 300)))
    drawing.rotate(rotation)  # upright for a reader, 600 wide and 800 high
    drawing.translate(-300, -400)
    drawing.setFont("Helvetica", 10)
    drawing.drawString(60, 720, "Revenue by region")
    drawing.drawString(60, 640, "Asia")
    drawing.drawString(480, 640, "1,234")
    drawing.save()
    ref, text = first_page(tmp_path / "a.pdf")
    words = place_words(ref, text)
    assert [text[word.start : word.end] for word in words] == ["Revenue", "by", "region", "Asia", "1,234"]
    revenue, _, _, asia, number = (word.box for word in words)
    assert revenue.left == pytest.approx(0.1, abs=0.01)
    assert revenue.top < 0.1 < revenue.bottom + 0.005
    assert asia.top == pytest.approx(number.top, abs=0.01)
    assert number.left == pytest.approx(0.8, abs=0.01)


class Printed(Recognizer):
    """Finds one line in every image."""

    def __init__(self) -> None: ...

    def lines(self, image: object) -> list[TextBox]:
        return [TextBox("net sales", 0, 10, 90, 20)]


def test_words_of_a_scan_come_from_recognition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    Image.new("RGB", (100, 200), "white").save(tmp_path / "scan.png")
    monkeypatch.setattr(word_boxes, "_recognizer", Printed)
    [ref] = [item for item in list_pages([tmp_path / "scan.png"]) if isinstance(item, PageRef)]
    words = place_words(ref, "net sales")
    assert [(word.start, word.end) for word in words] == [(0, 3), (4, 9)]
    assert (words[0].box.left, words[0].box.right) == pytest.approx((0, 0.3))
    assert (words[1].box.top, words[1].box.bottom) == pytest.approx((0.05, 0.1))


def test_a_recognized_line_is_split_at_its_blanks() -> None:
    line = TextBox("a  bc", 0, 0, 50, 10)
    assert [word.text for word in split_line(line, (100, 100))] == ["a", "bc"]
