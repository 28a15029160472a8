from itertools import product

import pytest
from reportlab.pdfbase.pdfmetrics import stringWidth

from miniature.draw import font
from miniature.layouts import width_cells
from miniature.vocabulary import (
    ENTITIES,
    FIELDS,
    FILLER,
    HEADINGS,
    LINES,
    MEASURES,
    NUMBERS,
    PAGE_WORDS,
    QUERY_WORDS,
    SUBJECTS,
    YEARS,
    Split,
    split_of,
)
from miniature.world import CELL_PIXELS, FACES, MAX_SHIFT_X, Face, Role

SPOKEN: dict[Role, tuple[str, ...]] = {
    "title": (*FIELDS, *SUBJECTS),
    "heading": YEARS,
    "name": ENTITIES,
    "body": (*MEASURES, *YEARS, *NUMBERS),
    "note": (*FILLER, *FIELDS, *SUBJECTS, *ENTITIES, *MEASURES),
}


def test_the_grammar_of_queries_stands_on_no_page() -> None:
    assert not set(QUERY_WORDS) & set(PAGE_WORDS)


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.regular)
def test_every_word_fits_its_cells_in_every_typeface_wherever_the_page_is_shifted(face: Face) -> None:
    for role, words in SPOKEN.items():
        for word in words:
            room = width_cells(word, role) * CELL_PIXELS - MAX_SHIFT_X
            assert stringWidth(word, *font(face, role)) <= room, (role, word)


def test_lines_of_text_end_within_the_text_area_even_indented() -> None:
    for line in (*LINES, *HEADINGS):
        text = line.format(topic=f"{FIELDS[0]} {SUBJECTS[0]}", entity=ENTITIES[0], measure=MEASURES[0])
        assert sum(width_cells(word, "note") for word in text.split()) <= 9, line


def test_each_split_has_about_half_of_all_combinations_of_every_word() -> None:
    for firsts, seconds in ((ENTITIES, MEASURES), (FIELDS, SUBJECTS)):
        ours = [split_of(*pair) is Split.EVALUATION for pair in product(firsts, seconds)]
        assert 0.4 < sum(ours) / len(ours) < 0.6
        for first in firsts:
            assert {split_of(first, second) for second in seconds} == set(Split)
