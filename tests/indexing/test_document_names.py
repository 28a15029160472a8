"""A name belongs to one file: what happens when files change, move, or share a name."""

import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from ridgerank.backbones.base import Backbone
from ridgerank.errors import StoreError
from ridgerank.indexing.index import IndexProgress, IndexReport, index_documents
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import locate_pages
from tests.conftest import refuse_listing, write_pdf


def index(path: Path, store: Path, backbone: Backbone, **options: Any) -> IndexReport:  # noqa: ANN401
    return index_documents(path, store, backbone, processes=0, **options)


def page_ids(store: Path) -> dict[str, str]:
    with PageStore.open(store) as opened:
        pages = opened.pages(opened.page_ids())
    assert all(page.references for page in pages)  # no page without a name
    return {name: page.page_id for page in pages for name in page.references}


def names(store: Path) -> list[str]:
    return sorted(page_ids(store))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_the_pages_of_a_changed_file_are_replaced_under_all_its_names(
    tmp_path: Path, store: Path, small_backbone: Backbone
) -> None:
    write_pdf(tmp_path / "in/x/a.pdf", pages=1)
    write_pdf(tmp_path / "in/y.pdf", pages=1, seed=1)
    index(tmp_path / "in", store, small_backbone)
    index(tmp_path / "in/x/a.pdf", store, small_backbone)
    assert names(store) == ["a.pdf#1", "x/a.pdf#1", "y.pdf#1"]
    write_pdf(tmp_path / "in/x/a.pdf", pages=2, seed=9)
    report = index(tmp_path / "in", store, small_backbone)
    assert (report.added, report.replaced, report.removed, report.renamed) == (2, 1, 0, ())
    assert names(store) == ["a.pdf#1", "a.pdf#2", "x/a.pdf#1", "x/a.pdf#2", "y.pdf#1"]


def test_files_of_one_name_from_two_folders_keep_both_names_apart(
    tmp_path: Path, store: Path, small_backbone: Backbone
) -> None:
    for number, year in enumerate(("2023", "2024", "2025")):
        write_pdf(tmp_path / year / "report.pdf", pages=2, seed=number)
        report = index(tmp_path / year / "report.pdf", store, small_backbone)
        assert (report.added, report.replaced, len(report.renamed)) == (2, 0, min(number, 1))
    assert "is stored as 2025/report.pdf: the shorter name is that of" in report.renamed[0]
    documents = ("2024/report.pdf", "2025/report.pdf", "report.pdf")
    expected = [f"{name}#{number}" for name in documents for number in (1, 2)]
    assert names(store) == expected
    assert index(tmp_path / "2024", store, small_backbone).renamed == ()
    write_pdf(tmp_path / "2024/report.pdf", pages=1, seed=7)
    report = index(tmp_path / "2024", store, small_backbone)
    assert (report.added, report.replaced, report.renamed) == (1, 2, ())
    assert names(store) == [name for name in expected if name != "2024/report.pdf#2"]


def test_a_moved_file_takes_its_name_along(tmp_path: Path, store: Path, small_backbone: Backbone) -> None:
    write_pdf(tmp_path / "old/a.pdf", pages=1)
    index(tmp_path / "old", store, small_backbone)
    (tmp_path / "old").rename(tmp_path / "new")
    assert index(tmp_path / "new", store, small_backbone).renamed == ()
    assert names(store) == ["a.pdf#1"]


def test_names_that_are_not_utf_8_and_names_of_two_lines_cost_nothing(
    tmp_path: Path, store: Path, small_backbone: Backbone
) -> None:
    folder = tmp_path / "in"
    for number, name in enumerate((b"latin-\xe9.pdf", b"new\nline.pdf", rb"new\nline.pdf", b"plain.pdf")):
        path = write_pdf(folder / "written.pdf", pages=1, seed=number)
        path.rename(os.fsdecode(os.fsencode(folder) + b"/" + name))
    for added in (4, 0):
        report = index(folder, store, small_backbone)
        assert (report.added, report.failures) == (added, ())
    assert names(store) == [r"latin-\udce9.pdf#1", r"new\\nline.pdf#1", r"new\nline.pdf#1", "plain.pdf#1"]
    with PageStore.open(store) as opened:
        assert len(locate_pages(opened, opened.page_ids())) == 4


def test_a_store_inside_the_folder_is_not_indexed(tmp_path: Path, small_backbone: Backbone) -> None:
    write_pdf(tmp_path / "in/a.pdf", pages=1)
    store = tmp_path / "in/store"
    index(tmp_path / "in", store, small_backbone)
    (store / "calibrations").mkdir()
    Image.new("RGB", (99, 99)).save(store / "calibrations/default.png")
    report = index(tmp_path / "in", store, small_backbone)
    assert (report.pages, report.skipped_files, report.failures) == (1, 1, ())
    for inside in (store, store / "calibrations"):
        report = index(inside, tmp_path / "other", small_backbone, preset="paper")
        assert report.pages == 0
        assert "a page store, or a part of one" in report.failures[0].reason


def test_pruning_never_empties_a_store_because_nothing_was_there_to_read(
    tmp_path: Path, store: Path, small_backbone: Backbone
) -> None:
    write_pdf(tmp_path / "in/a.pdf", pages=1)
    write_pdf(tmp_path / "in/b.pdf", pages=1, seed=1)
    index(tmp_path / "in", store, small_backbone)
    (tmp_path / "unmounted").mkdir()
    for path in ("unmounted", "misspelt"):
        with pytest.raises(StoreError, match="pruning would remove all 2"):
            index(tmp_path / path, store, small_backbone, prune=True)
    assert names(store) == ["a.pdf#1", "b.pdf#1"]


def test_pruning_spares_pages_of_a_folder_that_cannot_be_read_this_time(
    tmp_path: Path, store: Path, small_backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pdf(tmp_path / "in/locked/a.pdf", pages=1)
    write_pdf(tmp_path / "in/b.pdf", pages=1, seed=1)
    index(tmp_path / "in", store, small_backbone)
    refuse_listing(monkeypatch, "locked")
    assert index(tmp_path / "in", store, small_backbone, prune=True).removed == 0
    assert names(store) == ["b.pdf#1", "locked/a.pdf#1"]


def test_a_file_that_becomes_a_link_to_itself_costs_its_pages_alone(
    tmp_path: Path, store: Path, small_backbone: Backbone
) -> None:
    write_pdf(tmp_path / "in/a.pdf", pages=1)
    looped = write_pdf(tmp_path / "in/b.pdf", pages=1, seed=1)

    def replace_once_listed(_: IndexProgress) -> None:
        looped.unlink(missing_ok=True)
        looped.symlink_to(looped.name)

    report = index(tmp_path / "in", store, small_backbone, preset="paper", progress=replace_once_listed)
    assert [str(each) for each in report.failures] == [
        "b.pdf#1: a symbolic link that leads back to itself; remove it"
    ]
    assert names(store) == ["a.pdf#1"]
