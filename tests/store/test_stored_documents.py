"""Documents are listed and removed by name; pages that another document has stay."""

from pathlib import Path

import pytest

from ridgerank.errors import StoreError
from ridgerank.store.maintenance import RemovalReport, find_damage, list_stored_documents, remove_documents
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import remember_sources, source_owners
from ridgerank.store.store_writer import StoreWriter
from tests.store.pages import LINEAGE, page_id


@pytest.fixture
def shared_uri(uri: str, tmp_path: Path) -> str:
    """Pages 0 to 3 are of a.pdf, 2 to 5 of C#/b.pdf, 6 has no name, the rest are of report.pdf."""
    names: dict[str, list[str]] = {page_id(number): [] for number in range(7)}
    for number in range(4):
        names[page_id(number)].append(f"a.pdf#{number}")
    for number in range(2, 6):
        names[page_id(number)].append(f"C#/b.pdf#{number}")
    with StoreWriter(uri, LINEAGE) as writer:
        writer.set_references(names)
    remember_sources(uri, {"a.pdf": tmp_path / "a.pdf", "C#/b.pdf": tmp_path / "C#/b.pdf"})
    return uri


def documents(uri: str) -> dict[str, int]:
    with PageStore.open(uri) as store:
        return {document.name: document.pages for document in list_stored_documents(store)}


def test_documents_are_listed_with_their_pages_and_paths(shared_uri: str, tmp_path: Path) -> None:
    assert documents(shared_uri) == {"": 1, "C#/b.pdf": 4, "a.pdf": 4, "report.pdf": 5}
    with PageStore.open(shared_uri) as store:
        listed = {document.name: document for document in list_stored_documents(store)}
        assert sum(document.prefix_bytes for document in listed.values()) > store.info().prefix_bytes
    assert listed["a.pdf"].path == str(tmp_path / "a.pdf")
    assert listed["report.pdf"].path is None


def test_a_removed_document_leaves_the_pages_that_others_have(shared_uri: str) -> None:
    assert remove_documents(shared_uri, ["a.*"]) == RemovalReport(removed=2, kept=2)
    assert documents(shared_uri) == {"": 1, "C#/b.pdf": 4, "report.pdf": 5}
    assert "a.pdf" not in source_owners(shared_uri)
    with PageStore.open(shared_uri) as store:
        assert store.lookup("a.pdf#2") is None
        assert store.lookup("C#/b.pdf#2") == page_id(2)
        assert page_id(0) not in store
    assert list(find_damage(shared_uri)) == []


def test_a_path_and_a_page_id_name_what_is_to_be_removed(shared_uri: str, tmp_path: Path) -> None:
    names = [str(tmp_path / "C#/../C#/b.pdf"), page_id(6)]
    assert remove_documents(shared_uri, names) == RemovalReport(removed=3, kept=2)
    assert documents(shared_uri) == {"a.pdf": 4, "report.pdf": 5}


def test_an_unknown_name_removes_nothing_and_says_what_is_near(shared_uri: str) -> None:
    with pytest.raises(StoreError, match=r"no document reprot\.pdf .*did you mean report\.pdf\?"):
        remove_documents(shared_uri, ["a.pdf", "reprot.pdf"])
    with pytest.raises(StoreError, match="no document ~nobody-here"):
        remove_documents(shared_uri, ["~nobody-here/a.pdf"])
    assert documents(shared_uri)["a.pdf"] == 4


def test_a_kill_between_the_two_commits_loses_no_page_and_no_name(
    shared_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoreWriter, "set_references", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        remove_documents(shared_uri, ["a.pdf"])
    monkeypatch.undo()
    assert documents(shared_uri) == {"": 1, "C#/b.pdf": 4, "a.pdf": 2, "report.pdf": 5}
    remove_documents(shared_uri, ["a.pdf"])
    assert documents(shared_uri) == {"": 1, "C#/b.pdf": 4, "report.pdf": 5}


def test_a_removal_that_a_full_disk_stops_says_what_happened_and_can_be_finished(
    shared_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(writer: StoreWriter) -> None:
        raise StoreError("no space left on device")

    with monkeypatch.context() as full:
        full.setattr(StoreWriter, "reclaim", fill)
        with pytest.raises(StoreError, match=r"2 pages are removed .*not free yet .*no space left.*again"):
            remove_documents(shared_uri, ["a.pdf"])
    assert documents(shared_uri) == {"": 1, "C#/b.pdf": 4, "report.pdf": 5}
    assert remove_documents(shared_uri, ["a.pdf"]) == RemovalReport(removed=0, kept=0)
    assert "a.pdf" not in source_owners(shared_uri)
    with PageStore.open(shared_uri) as store:
        assert not any(fragment.num_deletions for fragment in store.fragments())
