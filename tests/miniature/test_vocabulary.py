import pytest
from reportlab.pdfbase.pdfmetrics import stringWidth

from miniature.draw import font
from miniature.layouts import width_cells
from miniature.vocabulary import ENTITIES, FIELDS, FILLER, MEASURES, NUMBERS, SUBJECTS, YEARS
from miniature.world import CELL_PIXELS, FACES, MAX_SHIFT_X, Face, Role

SPOKEN: dict[Role, tuple[str, ...]] = {
    "title": (*FIELDS, *SUBJECTS),
    "heading": YEARS,
    "name": ENTITIES,
    "body": (*MEASURES, *YEARS, *NUMBERS),
    "note": (*FILLER, *FIELDS, *SUBJECTS, *ENTITIES, *MEASURES),
}


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.regular)
def test_every_word_fits_its_cells_in_every_typeface_wherever_the_page_is_shifted(face: Face) -> None:
    for role, words in SPOKEN.items():
        for word in words:
            room = width_cells(word, role) * CELL_PIXELS - MAX_SHIFT_X
            assert stringWidth(word, *font(face, role)) <= room, (role, word)
