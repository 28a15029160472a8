import os
import subprocess
import sys
from pathlib import Path

import pytest

from ridgerank.documents.sources import Failure, SkippedFile, SourceFile, find_sources
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


def test_a_lone_file_goes_by_its_name(tmp_path: Path) -> None:
    _make(tmp_path, "deep/down/report.pdf")
    assert _names(tmp_path / "deep/down/report.pdf") == ["report.pdf"]


def test_a_relative_path_gives_the_same_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _make(tmp_path, "deep/report.pdf")
    monkeypatch.chdir(tmp_path / "deep")
    assert _names(".") == _names("../deep") == _names("report.pdf") == ["report.pdf"]


def test_names_under_several_paths_stay_apart(tmp_path: Path) -> None:
    _make(tmp_path, "2023/report.pdf", "2024/report.pdf", "2024/q/report.pdf")
    assert _names(tmp_path / "2023", tmp_path / "2024") == [
        "2023/report.pdf",
        "2024/q/report.pdf",
        "2024/report.pdf",
    ]
    assert _names(tmp_path / "2023/report.pdf", tmp_path / "2024/report.pdf") == [
        "2023/report.pdf",
        "2024/report.pdf",
    ]


def test_files_side_by_side_go_by_their_names_in_the_order_given(tmp_path: Path) -> None:
    _make(tmp_path, "b.pdf", "a.pdf")
    assert _names(tmp_path / "b.pdf", tmp_path / "a.pdf") == ["b.pdf", "a.pdf"]


def test_a_file_reached_by_two_paths_is_found_once(tmp_path: Path) -> None:
    _make(tmp_path, "a/report.pdf", "b.pdf")
    assert _names(tmp_path, tmp_path / "a", tmp_path / "a/report.pdf", tmp_path) == ["a/report.pdf", "b.pdf"]


def test_hidden_entries_are_skipped_unless_named(tmp_path: Path) -> None:
    _make(tmp_path, ".hidden.pdf", ".git/a.pdf", "seen.pdf")
    assert list(find_sources([tmp_path])) == [SourceFile(tmp_path / "seen.pdf", "seen.pdf")]
    assert _names(tmp_path / ".hidden.pdf", tmp_path) == [".hidden.pdf", "seen.pdf"]


def test_other_files_are_passed_over_in_a_folder_and_refused_when_named(tmp_path: Path) -> None:
    _make(tmp_path, "notes.txt", "README")
    assert list(find_sources([tmp_path])) == [SkippedFile("README"), SkippedFile("notes.txt")]
    [failure] = find_sources([tmp_path / "notes.txt"])
    assert isinstance(failure, Failure)
    assert str(failure).startswith("notes.txt: a .txt file; wanted one of .jpeg .jpg .pdf")
    assert [type(source) for source in find_sources([tmp_path, tmp_path / "notes.txt"])] == [
        SkippedFile,
        SkippedFile,
        Failure,
    ]


def test_a_path_that_does_not_exist_is_a_failure_and_the_rest_goes_on(tmp_path: Path) -> None:
    _make(tmp_path, "a.pdf")
    assert list(find_sources([tmp_path / "gone.pdf", tmp_path / "a.pdf"])) == [
        Failure("gone.pdf", "not there; check the path"),
        SourceFile(tmp_path / "a.pdf", "a.pdf"),
    ]


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


def test_an_unreadable_folder_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _make(tmp_path, "a.pdf", "locked/b.pdf")
    refuse_listing(monkeypatch, "locked")
    assert list(find_sources([tmp_path])) == [
        SourceFile(tmp_path / "a.pdf", "a.pdf"),
        Failure("locked", "may not be read by this user; grant the permission to read it"),
    ]


def test_finding_files_needs_neither_pdfium_nor_pillow() -> None:
    code = (
        "import sys, ridgerank.documents.render as _; sys.exit(bool({'pypdfium2', 'PIL'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
