"""Where pieces stand decides in which order they are read."""

import random

from ridgerank.documents.text import HYPHEN, TextBox, group_rows, write_in_reading_order


def line(text: str, left: float, top: float, *, letter: float = 10.0) -> list[TextBox]:
    """Words of a line, each letter half as wide as high."""
    boxes = []
    for word in text.split():
        boxes.append(TextBox(word, left, top, left + 0.5 * letter * len(word), top + letter))
        left = boxes[-1].right + 0.3 * letter
    return boxes


def test_nothing_reads_as_nothing() -> None:
    assert write_in_reading_order([]) == ""
    assert write_in_reading_order([TextBox("  ", 0, 0, 1, 1)]) == ""


def test_the_order_of_pieces_does_not_matter() -> None:
    boxes = [box for row in range(6) for box in line(f"row {row} says something", 10, 12 * row)]
    expected = write_in_reading_order(boxes)
    for seed in range(5):
        random.Random(seed).shuffle(boxes)
        assert write_in_reading_order(boxes) == expected


def test_a_gap_between_paragraphs_is_a_blank_line() -> None:
    boxes = line("first one", 0, 0) + line("goes on", 0, 12) + line("second", 0, 50)
    assert write_in_reading_order(boxes) == "first one\ngoes on\n\nsecond"


def test_a_divided_word_is_made_whole_again() -> None:
    boxes = line(f"a divi{HYPHEN}", 0, 0) + line("ded word", 0, 12)
    assert write_in_reading_order(boxes) == "a divided word"


def test_raised_signs_stay_in_their_row() -> None:
    raised = TextBox("2", 40, -2, 44, 4)
    rows = group_rows([*line("area in m", 0, 0), raised])
    assert [[box.text for box in row] for row in rows] == [["area", "in", "m", "2"]]


def test_columns_of_numbers_are_a_table_and_not_columns_of_text() -> None:
    boxes = []
    for row in range(6):
        for column in range(3):
            boxes += line(f"{row}{column}", 100.0 * column, 12.0 * row)
    assert write_in_reading_order(boxes).split("\n") == [f"| {row}0 | {row}1 | {row}2 |" for row in range(6)]


def test_one_row_of_cells_is_no_table() -> None:
    assert write_in_reading_order(line("left", 0, 0) + line("right", 200, 0)) == "left  right"
