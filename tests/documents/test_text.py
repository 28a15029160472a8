"""The text of pages: words, lines, columns, tables, turned pages, and where words stand."""

from pathlib import Path

import pytest
from PIL import Image
from reportlab.pdfgen.canvas import Canvas

from ridgerank.documents import ocr
from ridgerank.documents.ocr import Recognizer, place_words
from ridgerank.documents.pdf import PdfReader
from ridgerank.documents.render import PageRef, list_pages, render_pages
from ridgerank.documents.text import (
    HYPHEN,
    TextBox,
    clean_text,
    group_rows,
    write_in_reading_order,
)
from ridgerank.records import Page

LINE = "the quick brown fox jumps over"


def read(path: Path) -> str:
    with PdfReader() as reader:
        return reader.read(path, 1, max_pixels=10_000)[1]


def canvas(path: Path) -> Canvas:
    drawing = Canvas(str(path), pagesize=(612, 792))
    drawing.setFont("Helvetica", 10)
    return drawing


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("a\r\nb\rc\n", "a\nb\nc\n"),
        ("a\0b\x02c\ufffed\uffff", "abcd"),
        ("lone \ud800 and \udfff", "lone  and "),
        ("tab\there, é, 漢, 😀", "tab\there, é, 漢, 😀"),
    ],
)
def test_text_is_cleaned_of_what_is_no_text(raw: str, expected: str) -> None:
    assert clean_text(raw) == expected


def test_two_columns_are_read_one_after_the_other_whatever_order_they_were_painted_in(tmp_path: Path) -> None:
    drawing = canvas(tmp_path / "a.pdf")
    drawing.drawString(72, 740, "A title across the whole page, longer than either of its columns is wide")
    for row in range(8):
        drawing.drawString(330, 700 - 12 * row, f"right {row} {LINE}")
        drawing.drawString(72, 700 - 12 * row, f"left {row} {LINE}")
    drawing.save()
    lines = read(tmp_path / "a.pdf").split("\n")
    assert lines[0].startswith("A title")
    body = [line for line in lines[1:] if line]
    assert body == [f"{side} {row} {LINE}" for side in ("left", "right") for row in range(8)]


def test_rows_of_cells_become_table_rows_and_not_columns_of_text(tmp_path: Path) -> None:
    drawing = canvas(tmp_path / "a.pdf")
    table = [["Year", "Revenue", "Margin"], *([f"202{n}", f"12.{n}", f"{n} %"] for n in range(6))]
    for column in range(3):  # painted column by column, as many programs do
        for row, cells in enumerate(table):
            drawing.drawString(72 + 120 * column, 700 - 14 * row, cells[column])
    drawing.save()
    assert read(tmp_path / "a.pdf").split("\n") == [f"| {' | '.join(cells)} |" for cells in table]


def test_letters_painted_one_by_one_make_words(tmp_path: Path) -> None:
    drawing = canvas(tmp_path / "a.pdf")
    x = 72.0
    for letter in "operating margin":
        drawing.drawString(x, 700, letter)
        x += drawing.stringWidth(letter, "Helvetica", 10)
    drawing.save()
    assert read(tmp_path / "a.pdf") == "operating margin"


def test_text_up_the_margin_comes_last_and_disturbs_no_line(tmp_path: Path) -> None:
    drawing = canvas(tmp_path / "a.pdf")
    for row in range(5):
        drawing.drawString(72, 700 - 12 * row, f"line {row}")
    drawing.saveState()
    drawing.translate(60, 650)
    drawing.rotate(90)
    drawing.drawString(0, 0, "Downloaded from nowhere")
    drawing.restoreState()
    drawing.save()
    assert (
        read(tmp_path / "a.pdf")
        == "\n".join(f"line {row}" for row in range(5)) + "\n\nDownloaded from nowhere"
    )


def line(text: str, left: float, top: float, *, letter: float = 10.0) -> list[TextBox]:
    """Words of a line, each letter half as wide as high."""
    boxes = []
    for word in text.split():
        boxes.append(TextBox(word, left, top, left + 0.5 * letter * len(word), top + letter))
        left = boxes[-1].right + 0.3 * letter
    return boxes


def test_a_gap_between_paragraphs_is_a_blank_line() -> None:
    boxes = line("first one", 0, 0) + line("goes on", 0, 12) + line("second", 0, 50)
    assert write_in_reading_order(boxes) == "first one\ngoes on\n\nsecond"
    assert write_in_reading_order([TextBox("  ", 0, 0, 1, 1)]) == ""


def test_a_divided_word_is_made_whole_again() -> None:
    boxes = line(f"a divi{HYPHEN}", 0, 0) + line("ded word", 0, 12)
    assert write_in_reading_order(boxes) == "a divided word"


def test_raised_signs_stay_in_their_row() -> None:
    raised = TextBox("2", 40, -2, 44, 4)
    rows = group_rows([*line("area in m", 0, 0), raised])
    assert [[box.text for box in row] for row in rows] == [["area", "in", "m", "2"]]


def first_page(path: Path) -> tuple[PageRef, str]:
    [ref] = [item for item in list_pages([path]) if isinstance(item, PageRef)]
    [page] = [item for item in render_pages(list_pages([path]), max_pixels=10_000) if isinstance(item, Page)]
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
    def __init__(self) -> None: ...

    def lines(self, image: object) -> list[TextBox]:
        return [TextBox("net sales", 0, 10, 90, 20)]


def test_words_of_a_scan_come_from_recognition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("RGB", (100, 200), "white").save(tmp_path / "scan.png")
    monkeypatch.setattr(ocr, "_recognizer", Printed)
    [ref] = [item for item in list_pages([tmp_path / "scan.png"]) if isinstance(item, PageRef)]
    words = place_words(ref, "net sales")
    assert [(word.start, word.end) for word in words] == [(0, 3), (4, 9)]
    assert (words[0].box.left, words[0].box.right) == pytest.approx((0, 0.3))
    assert (words[1].box.top, words[1].box.bottom) == pytest.approx((0.05, 0.1))
