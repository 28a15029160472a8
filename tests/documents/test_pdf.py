"""Pages of PDF files, whole and broken."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pypdfium2.internal import ObjectTracker

from ridgerank.documents import pdf as pdf_module
from ridgerank.documents.pdf import PdfReader, count_pages
from ridgerank.documents.render import PageRef, list_pages
from ridgerank.documents.sources import Failure
from ridgerank.errors import DocumentError
from tests.documents.sample_files import numbered_pdf, page, pdf

BUDGET = 60_000


def _write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return _write(tmp_path / "report.pdf", numbered_pdf(5))


@pytest.mark.parametrize(
    "box", ["0 0 612 792", "0 0 61 79", "0 0 14400 14400", "0 0 200 2000", "-5 -5 0.5 3", "0 0 9e30 9e30"]
)
@pytest.mark.parametrize("budget", [1000, 60_000, 602_112])
def test_images_come_just_within_the_budget_whatever_the_size_of_the_page(
    tmp_path: Path, box: str, budget: int
) -> None:
    path = _write(tmp_path / "a.pdf", pdf([page("x", box=box)]))
    with PdfReader() as reader:
        image, _ = reader.read(path, 1, max_pixels=budget)
    assert image.mode == "RGB"
    assert budget * 0.9 - sum(image.size) < image.width * image.height <= budget


def test_colours_places_and_visible_text_are_those_of_the_page(tmp_path: Path) -> None:
    red_lower_left = page(box="0 0 600 600", paint="1 0 0 rg 0 0 300 300 re f")
    path = _write(tmp_path / "a.pdf", pdf([red_lower_left, page("hidden", crop="0 0 612 300")]))
    with PdfReader() as reader:
        image, _ = reader.read(path, 1, max_pixels=10_000)
        assert reader.read(path, 2, max_pixels=BUDGET)[1] == ""
    assert image.size == (100, 100)
    assert image.getpixel((25, 75)) == (255, 0, 0)
    assert image.getpixel((75, 25)) == (255, 255, 255)


def test_a_pdf_of_too_many_pages_is_refused(report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf_module, "MAX_DOCUMENT_PAGES", 4)
    with pytest.raises(DocumentError, match="5 pages, more than 4"):
        count_pages(report)


def test_nothing_of_pdfium_is_left_open(report: Path, tmp_path: Path) -> None:
    count_pages(report)
    with pytest.raises(DocumentError):
        count_pages(_write(tmp_path / "empty.pdf", pdf([])))
    with PdfReader() as reader:
        image, _ = reader.read(report, 1, max_pixels=BUDGET)
        with pytest.raises(DocumentError, match="cannot read this page"):
            reader.read(report, 9, max_pixels=BUDGET)
    assert not any(ObjectTracker.values())
    assert image.getpixel((0, 0)) == (255, 255, 255)


changes = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), max_size=6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzzed")


@settings(max_examples=100, deadline=None)
@given(changes=changes, cut=st.floats(0, 2))
def test_a_changed_or_cut_pdf_is_listed_or_refused(
    changes: list[tuple[float, int]], cut: float, folder: Path
) -> None:
    whole = numbered_pdf(2)
    content = bytearray(whole[: round(cut * len(whole))] if cut < 1 else whole)
    for position, mask in changes:
        if content:
            content[int(position * len(content))] ^= mask
    (folder / "changed.pdf").write_bytes(content)
    items = list(list_pages([folder / "changed.pdf"]))
    assert items
    assert all(isinstance(item, PageRef | Failure) for item in items)
