"""The text layer of PDFs made on the spot: words, lines, columns, tables, turned pages."""

from pathlib import Path

import pytest
from reportlab.pdfgen.canvas import Canvas

from ridgerank.documents.pdf import PdfReader
from ridgerank.documents.text import clean_text

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


def test_rows_of_cells_become_table_rows(tmp_path: Path) -> None:
    drawing = canvas(tmp_path / "a.pdf")
    table = [["Year", "Revenue", "Margin"], ["2019", "12.4", "7 %"], ["2020", "13.9", "8 %"]]
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


def test_a_page_stored_on_its_side_reads_like_one_that_is_not(tmp_path: Path) -> None:
    texts = []
    for rotation in (0, 90, 180, 270):
        drawing = canvas(tmp_path / "a.pdf")
        drawing.setPageRotation(rotation)
        drawing.translate(300, 400)
        drawing.rotate(rotation)
        for row in range(3):
            drawing.drawString(0, -12 * row, f"line {row}")
        drawing.save()
        texts.append(read(tmp_path / "a.pdf"))
    assert texts == ["line 0\nline 1\nline 2"] * 4


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
