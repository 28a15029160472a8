"""Where pieces stand decides in which order they are read."""

import random

from ridgerank.documents.reading_order import HYPHEN, Piece, read_in_order, rows_of


def line(text: str, left: float, top: float, *, letter: float = 10.0) -> list[Piece]:
    """Words of a line, each letter half as wide as high."""
    pieces = []
    for word in text.split():
        pieces.append(Piece(word, left, top, left + 0.5 * letter * len(word), top + letter))
        left = pieces[-1].right + 0.3 * letter
    return pieces


def test_nothing_reads_as_nothing() -> None:
    assert read_in_order([]) == ""
    assert read_in_order([Piece("  ", 0, 0, 1, 1)]) == ""


def test_the_order_of_pieces_does_not_matter() -> None:
    pieces = [piece for row in range(6) for piece in line(f"row {row} says something", 10, 12 * row)]
    wanted = read_in_order(pieces)
    for seed in range(5):
        random.Random(seed).shuffle(pieces)
        assert read_in_order(pieces) == wanted


def test_a_gap_between_paragraphs_is_a_blank_line() -> None:
    pieces = line("first one", 0, 0) + line("goes on", 0, 12) + line("second", 0, 50)
    assert read_in_order(pieces) == "first one\ngoes on\n\nsecond"


def test_a_divided_word_is_made_whole_again() -> None:
    pieces = line(f"a divi{HYPHEN}", 0, 0) + line("ded word", 0, 12)
    assert read_in_order(pieces) == "a divided word"


def test_raised_signs_stay_in_their_row() -> None:
    raised = Piece("2", 40, -2, 44, 4)
    rows = rows_of([*line("area in m", 0, 0), raised])
    assert [[piece.text for piece in row] for row in rows] == [["area", "in", "m", "2"]]


def test_columns_of_numbers_are_a_table_and_not_columns_of_text() -> None:
    pieces = []
    for row in range(6):
        for column in range(3):
            pieces += line(f"{row}{column}", 100.0 * column, 12.0 * row)
    assert read_in_order(pieces).split("\n") == [f"| {row}0 | {row}1 | {row}2 |" for row in range(6)]


def test_one_row_of_cells_is_no_table() -> None:
    assert read_in_order(line("left", 0, 0) + line("right", 200, 0)) == "left  right"
