"""Different texts are drawn differently, or refused: never as rows of the same boxes."""

from pathlib import Path

import numpy as np
import pytest
from PIL import ImageChops, ImageFont

from ridgerank.documents import drawn_text
from ridgerank.documents.drawn_text import MARGIN, choose_font, draw_text, find_missing
from ridgerank.errors import DocumentError


@pytest.fixture(autouse=True)
def _no_cache() -> None:
    drawn_text._installed_fonts.cache_clear()


def differ(left: str, right: str) -> bool:
    return ImageChops.difference(draw_text(left), draw_text(right)).getbbox() is not None


def test_english_is_drawn_with_pillow_s_own_font() -> None:
    assert choose_font(frozenset("Operatingmargin,2019:3%")).getname()[0] == "Aileron"
    assert differ("operating margin", "operating marten")


def test_what_no_font_has_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn_text, "_installed_fonts", lambda: ())
    with pytest.raises(DocumentError, match=r"no installed font has all of: 业 \(U\+4E1A\), 营 \(U\+8425\)"):
        draw_text("margin 营业")


def test_other_scripts_are_drawn_with_a_font_that_has_them() -> None:
    try:
        font = choose_font(frozenset("операционнаяприбыльрентабельность"))
    except DocumentError:
        pytest.skip("no font with Cyrillic letters is installed")
    assert not find_missing(font, frozenset("рентабельность"))
    assert differ("операционная прибыль", "операционная маржа")


def test_a_character_a_font_lacks_is_noticed() -> None:
    font = ImageFont.load_default(18)
    assert isinstance(font, ImageFont.FreeTypeFont)
    assert find_missing(font, frozenset("aZ%业З")) == {"业", "З"}


@pytest.mark.parametrize("text", ["W" * 84, "W" * 300, "MMMM WWWW " * 20])
def test_nothing_runs_over_the_edge_of_the_page(text: str) -> None:
    ink = np.flatnonzero((np.asarray(draw_text(text).convert("L")) < 128).any(axis=0))
    assert ink[0] >= MARGIN - 5
    assert ink[-1] <= 850 - MARGIN + 5


def test_what_is_never_drawn_is_no_reason_to_refuse() -> None:
    assert not differ("net\u200b margin\ufeff", "net margin")
    assert not differ("fi\u00ad", "fi")


def test_a_broken_font_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "broken.ttf").write_bytes(b"no font")
    monkeypatch.setattr(drawn_text, "_installed_fonts", lambda: (tmp_path / "broken.ttf",))
    with pytest.raises(DocumentError, match="no installed font"):
        draw_text("营")
