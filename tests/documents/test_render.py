import multiprocessing
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from ridgerank.documents import render as pages_module
from ridgerank.documents import sources
from ridgerank.documents.pdf import PdfReader
from ridgerank.documents.render import PageRef, list_pages, page_from_image, render_pages
from ridgerank.documents.sources import Failure, SkippedFile
from ridgerank.records import Page
from tests.documents.sample_files import encrypted_pdf, numbered_pdf, page, pdf

BUDGET = 20_000


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Ten pages in four files, and a file that holds none."""
    folder = tmp_path / "corpus"
    (folder / "b").mkdir(parents=True)
    (folder / "a.pdf").write_bytes(numbered_pdf(5, title="a"))
    Image.new("RGB", (40, 30), "red").save(folder / "b/photo.png")
    (folder / "c.pdf").write_bytes(numbered_pdf(2, title="c"))
    (folder / "notes.txt").write_text("not a page")
    frames = [Image.new("L", (40, 30), grey) for grey in (1, 2)]
    frames[0].save(folder / "scan.tif", save_all=True, append_images=frames[1:])
    return folder


REFERENCES = [
    *(f"a.pdf#{number}" for number in range(1, 6)),
    "b/photo.png#1",
    "c.pdf#1",
    "c.pdf#2",
    "notes.txt",
    "scan.tif#1",
    "scan.tif#2",
]


def _refs(folder: Path) -> list[PageRef]:
    return [item for item in list_pages([folder]) if isinstance(item, PageRef)]


@pytest.mark.parametrize("processes", [0, 1, 2])
def test_pages_come_in_the_order_of_the_files_with_what_is_none_in_its_place(
    corpus: Path, processes: int
) -> None:
    listed = list(list_pages([corpus], processes=processes))
    read = list(render_pages(listed, max_pixels=BUDGET, processes=processes))
    assert [item.reference for item in listed] == [item.reference for item in read] == REFERENCES
    assert [item for item in read if not isinstance(item, Page)] == [SkippedFile("notes.txt")]
    pages = [item for item in read if isinstance(item, Page)]
    assert [page.page_id for page in pages] == [ref.page_id for ref in _refs(corpus)]
    small = [page for page in render_pages(listed, max_pixels=500) if isinstance(page, Page)]
    assert [(page.page_id, page.text) for page in small] == [(page.page_id, page.text) for page in pages]
    assert len({page.image.tobytes() for page in pages}) == len({page.page_id for page in pages}) == 10


@pytest.mark.parametrize("processes", [0, 2])
def test_a_bad_file_costs_one_line_and_the_rest_goes_on(tmp_path: Path, processes: int) -> None:
    good = numbered_pdf(1)
    files = {
        "a-good.pdf": good,
        "b-encrypted.pdf": encrypted_pdf(),
        "c-empty.pdf": b"",
        "d-damaged.pdf": b"%PDF-1.7\nnothing",
        "e-no-pages.pdf": pdf([]),
        "f-no-pdf.pdf": b"<html></html>",
        "g-no-image.png": b"<html></html>",
        "h-empty.jpg": b"",
        "i-unknown-lock.pdf": encrypted_pdf(security_handler="Unheard"),
        "j-cut.pdf": numbered_pdf(3)[:60],
        "k-good.pdf": good,
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    read = list(
        render_pages(list_pages([tmp_path], processes=processes), max_pixels=BUDGET, processes=processes)
    )
    assert [item.reference.split("#")[0] for item in read] == list(files)
    assert [str(item) for item in read if isinstance(item, Failure)] == [
        "b-encrypted.pdf: encrypted, a password is needed; save a copy without one",
        "c-empty.pdf: an empty file; get a complete copy",
        "d-damaged.pdf: a truncated or damaged PDF; get a complete copy, or repair it",
        "e-no-pages.pdf: a PDF without pages; export it again",
        "f-no-pdf.pdf: named as a PDF but not one (no %PDF- at its start); give it its true suffix",
        "g-no-image.png: named as an image but not a PNG, JPEG, TIFF or WebP; give it its true suffix",
        "h-empty.jpg: an empty file; get a complete copy",
        "i-unknown-lock.pdf: encrypted in a way pdfium does not know; save a copy without encryption",
        "j-cut.pdf: a truncated or damaged PDF; get a complete copy, or repair it",
    ]


def test_a_pdf_cut_short_gives_what_is_left_of_it_and_a_line_that_says_so(tmp_path: Path) -> None:
    whole = numbered_pdf(3)
    (tmp_path / "a.pdf").write_bytes(whole[: whole.rindex(b"startxref")])
    read = list(render_pages(list_pages([tmp_path]), max_pixels=BUDGET))
    assert [item.reference for item in read] == ["a.pdf", "a.pdf#1", "a.pdf#2", "a.pdf#3"]
    assert isinstance(read[0], Failure)
    assert read[0].reason.startswith("cut short, 3 pages were recovered")


def test_a_file_larger_than_the_limit_is_not_opened(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_FILE_BYTES", 100)
    monkeypatch.setattr(sources, "digest_file", lambda path: pytest.fail("opened"))
    [failure] = list_pages([corpus / "a.pdf"])
    assert isinstance(failure, Failure)
    assert failure.reason.endswith("bytes, more than 100; split it")


def _refuse(path: Path) -> bytes:
    raise PermissionError(13, "Permission denied")


def _grow(path: Path) -> bytes:
    with path.open("ab") as file:
        file.write(b"more")
    return b"\0" * 32


@pytest.mark.parametrize(
    ("read", "reason"),
    [
        (_refuse, "may not be read by this user; grant the permission to read it"),
        (_grow, "was written to while it was read; list it again"),
    ],
)
def test_a_file_one_may_not_read_or_that_is_written_to_is_a_failure(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], bytes], reason: str
) -> None:
    monkeypatch.setattr(sources, "digest_file", read)
    assert list(list_pages([corpus / "a.pdf"])) == [Failure("a.pdf", reason)]


@pytest.mark.parametrize("processes", [0, 2])
def test_files_gone_or_changed_since_they_were_listed_are_not_read(corpus: Path, processes: int) -> None:
    refs = _refs(corpus)
    (corpus / "b/photo.png").unlink()
    (corpus / "c.pdf").write_bytes(numbered_pdf(2, title="another"))
    read = list(render_pages(refs, max_pixels=BUDGET, processes=processes))
    assert [str(item) for item in read if isinstance(item, Failure)] == [
        "b/photo.png#1: gone since it was listed; put it back, or list again",
        "c.pdf#1: changed since it was listed; list it again",
        "c.pdf#2: changed since it was listed; list it again",
    ]


def test_a_page_larger_than_the_memory_is_a_failure(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhaust(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(PdfReader, "read", exhaust)
    failures = list(render_pages(list_pages([corpus / "a.pdf"]), max_pixels=BUDGET))
    assert len(failures) == 5
    assert str(failures[0]).startswith("a.pdf#1: larger than the memory")


def test_readers_that_are_killed_cost_the_pages_they_had(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(numbered_pdf(60))
    pages = render_pages(list_pages([tmp_path / "a.pdf"], processes=2), max_pixels=BUDGET, processes=2)
    read = [next(pages)]
    for process in multiprocessing.active_children():
        process.kill()
    read.extend(pages)
    assert [item.reference for item in read] == [f"a.pdf#{number}" for number in range(1, 61)]
    lost = [item for item in read if isinstance(item, Failure)]
    assert 1 <= len(lost) <= 2
    assert all("ended the process that read it (Killed)" in failure.reason for failure in lost)
    assert multiprocessing.active_children() == []


def test_an_image_in_memory_is_a_page_within_the_budget_with_an_id_that_does_not_depend_on_it() -> None:
    image = Image.effect_mandelbrot((400, 300), (-2, -1.5, 1, 1.5), 50)
    large, small = (page_from_image(image, "set#1", max_pixels=budget, text="x") for budget in (10**6, 10**3))
    assert large.page_id == small.page_id
    assert (large.reference, large.text, large.image.size) == ("set#1", "x", (400, 300))
    assert small.image.width * small.image.height <= 1000


def test_images_that_look_different_have_different_ids() -> None:
    image = Image.new("P", (4, 2))
    palettes = ([0, 0, 0], [255, 0, 0], [0, 0, 255])
    ids = set()
    for palette in palettes:
        image.putpalette(palette)
        ids.add(page_from_image(image, "set#1", max_pixels=BUDGET).page_id)
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = image.copy()
    turned.info["exif"] = exif.tobytes()
    ids.add(page_from_image(turned, "set#1", max_pixels=BUDGET).page_id)
    assert len(ids) == 4


def test_a_page_of_very_many_strokes_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strokes = page("slow", paint="0 0 m 600 700 l S 600 0 m 0 700 l S " * 50_000)
    (tmp_path / "a.pdf").write_bytes(pdf([strokes, page("quick")]))
    monkeypatch.setattr(pages_module, "PAGE_SECONDS", 0.5)
    slow, quick = render_pages(_refs(tmp_path), max_pixels=BUDGET, processes=1)
    assert isinstance(slow, Failure)
    assert slow.reason.startswith("took too long and was given up")
    assert quick.reference == "a.pdf#2"
