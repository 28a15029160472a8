"""Files are found, named and bounded, and their pages identified."""

import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from ridgerank.documents.sources import (
    MAX_ASPECT_RATIO,
    Failure,
    SkippedFile,
    SourceFile,
    chunk_page_names,
    find_sources,
    fit_within_pixels,
    image_page_id,
    text_page_id,
)
from ridgerank.errors import DocumentError
from tests.conftest import refuse_listing


def _make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"anything")


def _names(*paths: Path | str) -> list[str]:
    return [source.name for source in find_sources(paths) if isinstance(source, SourceFile)]


def test_a_folder_is_read_recursively_and_sorted(tmp_path: Path) -> None:
    _make(tmp_path, "b.pdf", "a/z.png", "a/c/y.TIFF", "c.webp", "a.jpg", "B.jpeg", "d.tif")
    assert _names(tmp_path) == ["B.jpeg", "a/c/y.TIFF", "a/z.png", "a.jpg", "b.pdf", "c.webp", "d.tif"]


def test_names_are_relative_to_what_the_paths_share_and_found_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _make(tmp_path, "2023/report.pdf", "2024/report.pdf", "2024/q/report.pdf")
    names = ["2023/report.pdf", "2024/q/report.pdf", "2024/report.pdf"]
    assert _names(tmp_path / "2023", tmp_path / "2024") == names
    assert sorted(_names(tmp_path, tmp_path / "2024", tmp_path / "2024/report.pdf", tmp_path)) == names
    monkeypatch.chdir(tmp_path / "2023")
    assert _names(".") == _names("../2023") == _names("report.pdf") == ["report.pdf"]


def test_hidden_entries_are_skipped_unless_named(tmp_path: Path) -> None:
    _make(tmp_path, ".hidden.pdf", ".git/a.pdf", "seen.pdf")
    assert list(find_sources([tmp_path])) == [SourceFile(tmp_path / "seen.pdf", "seen.pdf")]
    assert _names(tmp_path / ".hidden.pdf", tmp_path) == [".hidden.pdf", "seen.pdf"]


def test_other_files_are_passed_over_in_a_folder_and_refused_when_named(tmp_path: Path) -> None:
    _make(tmp_path, "notes.txt", "README")
    assert list(find_sources([tmp_path])) == [SkippedFile("README"), SkippedFile("notes.txt")]
    [failure] = find_sources([tmp_path / "notes.txt"])
    assert isinstance(failure, Failure)
    assert str(failure).startswith("notes.txt: a .txt file; expected one of .jpeg .jpg .pdf")


def test_links_are_followed_and_loops_end(tmp_path: Path) -> None:
    _make(tmp_path, "corpus/a/report.pdf", "elsewhere/far.pdf")
    (tmp_path / "corpus/a/again").symlink_to(tmp_path / "corpus", target_is_directory=True)
    (tmp_path / "corpus/itself").symlink_to("itself")
    (tmp_path / "corpus/linked").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (tmp_path / "corpus/nowhere.pdf").symlink_to("gone.pdf")
    assert list(find_sources([tmp_path / "corpus"])) == [
        SourceFile(tmp_path / "corpus/a/report.pdf", "a/report.pdf"),
        SkippedFile("itself"),
        SourceFile(tmp_path / "corpus/linked/far.pdf", "linked/far.pdf"),
        Failure("nowhere.pdf", "not there; check the path"),
    ]


def test_what_would_block_when_opened_is_no_source(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pdf")
    assert list(find_sources([tmp_path])) == [SkippedFile("pipe.pdf")]
    [failure] = find_sources([tmp_path / "pipe.pdf"])
    assert isinstance(failure, Failure)


def test_names_are_one_line_of_characters_that_encode(tmp_path: Path) -> None:
    (tmp_path / "two\nlines.pdf").write_bytes(b"anything")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/latin-\xe9.pdf")).write_bytes(b"anything")
    names = _names(tmp_path)
    assert names == ["latin-\\udce9.pdf", "two\\nlines.pdf"]


def test_images_of_another_shape_mode_or_text_have_other_ids() -> None:
    images = [Image.new("RGB", (4, 6)), Image.new("RGB", (6, 4)), Image.new("L", (12, 6))]
    assert len({image.tobytes() for image in images}) == 1
    ids = [image_page_id(image, text) for image in images for text in ("one", "two")]
    assert len({*ids, text_page_id("one"), text_page_id("two")}) == 8
    assert image_page_id(images[0].copy(), "one") == ids[0]


sides = st.floats(min_value=1e-3, max_value=1e9)
ratios = st.floats(min_value=1.01 / MAX_ASPECT_RATIO, max_value=0.99 * MAX_ASPECT_RATIO)


@given(height=sides, ratio=ratios, budget=st.integers(1, 10**8))
def test_fitted_size_is_within_the_budget_and_loses_at_most_a_row_and_a_column(
    height: float, ratio: float, budget: int
) -> None:
    columns, rows = fit_within_pixels(height * ratio, height, budget)
    assert columns >= 1
    assert rows >= 1
    assert columns * rows <= budget
    exact_columns, exact_rows = math.sqrt(budget * ratio), math.sqrt(budget / ratio)
    assert columns * rows >= (exact_columns - 1) * (exact_rows - 1) * (1 - 1e-9) - 1


@pytest.mark.parametrize("size", [(0, 10), (10, -1), (math.inf, 10), (10, math.nan), (1, 201), (1000, 4.9)])
def test_a_page_without_area_or_as_thin_as_a_thread_is_refused(size: tuple[float, float]) -> None:
    with pytest.raises(DocumentError, match=r"no area|cut it up"):
        fit_within_pixels(*size, 1000)


@pytest.mark.parametrize(
    ("first_page", "metadata", "names"),
    [
        (0, {"source": "in/report.pdf", "page": 2}, ("in/report.pdf#3", "report.pdf#3")),
        (0, {"source": "report.pdf", "page": 0, "page_label": "i"}, ("report.pdf#1",)),
        (1, {"source": "report.pdf", "page": 3}, ("report.pdf#3",)),
        (1, {"file_path": "report.pdf", "page_number": 3}, ("report.pdf#3",)),
        (1, {"file_name": "report.pdf", "page_label": "3"}, ("report.pdf#3",)),
        (1, {"file_name": "report.pdf", "page_label": "iii"}, ()),
        (1, {"source": "report.pdf", "page": 0}, ()),
        (1, {"source": "report.pdf"}, ()),
        (1, {"page": 3}, ()),
        (1, {"source": "report.pdf", "page": True}, ()),
    ],
)
def test_a_file_and_a_number_name_the_page(
    first_page: int, metadata: dict[str, object], names: tuple[str, ...]
) -> None:
    assert chunk_page_names(metadata, first_page=first_page) == names


def test_a_path_that_is_too_long_is_a_failure(tmp_path: Path) -> None:
    _make(tmp_path, "a.pdf")
    long = tmp_path / ("x" * 300 + ".pdf")
    for paths in ([long], [tmp_path, long], [long / "in" / "it"]):
        failures = [item for item in find_sources(paths) if isinstance(item, Failure)]
        assert [failure.reason for failure in failures] == [
            "its path is longer than the system allows; shorten it"
        ]


def test_a_folder_that_may_not_be_listed_or_looked_into_is_passed_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _make(tmp_path, "a.pdf", "locked/b.pdf", "locked/in/c.pdf")
    refused = "may not be read by this user; grant the permission to read it"
    with monkeypatch.context() as patch:
        refuse_listing(patch, "locked")
        assert list(find_sources([tmp_path]))[1:] == [Failure("locked", refused)]
    stat = os.stat

    def refusing(path: Path, **options: bool) -> os.stat_result:
        if "locked/" in os.fspath(path):
            raise PermissionError(13, "Permission denied")
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", refusing)
    assert list(find_sources([tmp_path])) == [
        SourceFile(tmp_path / "a.pdf", "a.pdf"),
        Failure("locked/b.pdf", refused),
        Failure("locked/in", refused),
    ]
