"""Pages without a text layer are read off their image, once."""

from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont

from ridgerank.documents.ocr import Recognizer, recognize_pages
from ridgerank.documents.sources import Failure
from ridgerank.records import Page


def drawn(text: str, *, layer: str = "") -> Page:
    image = Image.new("RGB", (700, 200), "white")
    ImageDraw.Draw(image).text((20, 60), text, fill="black", font=ImageFont.load_default(40))
    return Page(f"id of {text}", "scan.pdf#1", image, layer)


class Counting(Recognizer):
    """Reads what it is told to, and counts."""

    def __init__(self, answer: str, *, cache: Path | None = None) -> None:
        self._version, self._cache, self._answer, self.calls = "0", cache, answer, 0

    def _recognize(self, image: Image.Image) -> str:
        self.calls += 1
        return self._answer


@pytest.mark.slow
def test_a_scan_is_read() -> None:
    pytest.importorskip("rapidocr")
    text = Recognizer().read(drawn("Operating margin 2019"))
    assert text.replace(" ", "").lower() == "operatingmargin2019"
    assert Recognizer().read(drawn("")) == ""


def test_only_pages_without_a_layer_are_read_and_everything_else_passes_through() -> None:
    scan, printed, failure = (
        drawn("a"),
        drawn("b", layer="a layer of more than sixteen signs"),
        Failure("x", "y"),
    )
    engine = Counting("what the image shows")
    out = list(recognize_pages([scan, printed, failure], engine))
    assert engine.calls == 1
    assert [page.text for page in out[:2] if isinstance(page, Page)] == ["what the image shows", printed.text]
    assert (out[1], out[2]) == (printed, failure)
    engine = Counting("pg")  # a layer of few signs stays where the image yields fewer
    (page,) = recognize_pages([drawn("a", layer="page 12")], engine)
    assert isinstance(page, Page)
    assert (page.text, engine.calls) == ("page 12", 1)


def test_a_page_is_read_once_with_a_cache(tmp_path: Path) -> None:
    first = Counting("found", cache=tmp_path / "cache")
    assert [first.read(drawn("a")), first.read(drawn("a"))] == ["found", "found"]
    second = Counting("other", cache=tmp_path / "cache")
    assert [second.read(drawn("a")), second.read(drawn("b"))] == ["found", "other"]
    assert (first.calls, second.calls) == (1, 1)
