import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from ridgerank.errors import ArtifactError, LineageMismatch, StoreError
from ridgerank.lineage import Keep, StorageSetting
from ridgerank.store import layout, store_writer
from ridgerank.store.page_store import PageStore, ids_filter
from ridgerank.store.store_writer import LOCK_NAME, StoreWriter
from tests.store.pages import LINEAGE, ORIGIN, assert_same, page_id, prefix, row


def read_back(uri: str, numbers: list[int]) -> None:
    with PageStore.open(uri) as store:
        for number, found in zip(numbers, store.read_prefixes([page_id(n) for n in numbers]), strict=True):
            assert_same(found, prefix(number))


def test_a_store_is_made_and_opened_again_while_empty(tmp_path: Path) -> None:
    uri = str(tmp_path / "deep" / "store")
    with StoreWriter(uri, LINEAGE) as writer:
        assert writer.page_ids() == frozenset()
    with PageStore.open(uri) as store:
        assert (len(store), store.info().prefix_bytes, store.page_ids()) == (0, 0, [])
    with StoreWriter(uri, LINEAGE) as writer:
        writer.append([])
        writer.append([row(0)])
    read_back(uri, [0])


def test_a_new_store_that_an_error_left_empty_is_removed_and_one_with_pages_stays(tmp_path: Path) -> None:
    uri = tmp_path / "store"

    def fail_after(pages: int) -> None:
        with suppress(RuntimeError), StoreWriter(str(uri), LINEAGE) as writer:
            writer.append([row(number) for number in range(pages)])
            raise RuntimeError

    fail_after(0)
    assert not uri.exists()
    uri.mkdir()
    fail_after(0)
    assert [entry.name for entry in uri.iterdir()] == [LOCK_NAME]
    fail_after(2)
    fail_after(0)
    read_back(str(uri), [0, 1])


def test_another_lineage_is_refused_with_both_values_shown(uri: str) -> None:
    storage = StorageSetting(Keep.parse("value-norm 1/2"), 21)
    other = replace(LINEAGE, storage=storage)
    with pytest.raises(
        LineageMismatch, match=r"keep: 'stride 1/3' there, 'value-norm 1/2' here; exit_layer: 3 there, 21"
    ):
        StoreWriter(uri, other)
    read_back(uri, [0, 11])


def test_another_format_or_another_lance_dataset_is_refused(uri: str, tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"a": [1]}), str(tmp_path / "other"))
    with pytest.raises(StoreError, match="not a page store"):
        PageStore.open(str(tmp_path / "other"))
    lance.dataset(uri).update_schema_metadata({"ridgerank:format": "99"})
    with pytest.raises(ArtifactError, match="format 99, expected 1"):
        PageStore.open(uri)


def test_a_page_is_never_stored_twice(uri: str) -> None:
    with StoreWriter(uri, LINEAGE) as writer:
        for batch in ([row(50), row(3)], [row(50), row(50)]):
            with pytest.raises(StoreError, match="stored already or given twice"):
                writer.append(batch)
        assert page_id(50) not in writer.page_ids()
    assert len(PageStore.open(uri)) == 12


def test_removed_pages_are_gone_their_space_is_given_back_and_the_others_stay(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StoreWriter(uri, LINEAGE) as writer:
        writer.remove([page_id(1), page_id(6)])
        writer.append([row(1)])
    with PageStore.open(uri) as store:
        assert (len(store), page_id(6) in store, page_id(1) in store) == (11, False, True)
    monkeypatch.setattr(store_writer, "READER_GRACE", timedelta(microseconds=1))
    data = Path(uri) / "data"
    before = sum(file.stat().st_size for file in data.iterdir())
    with StoreWriter(uri, LINEAGE) as writer:
        writer.remove([page_id(number) for number in (0, 1, 2, 4, 5)])
        writer.reclaim()
        writer._sweep()
    assert sum(file.stat().st_size for file in data.iterdir()) < 0.7 * before
    read_back(uri, [3, 7, 8, 9, 10, 11])


def test_however_many_pages_are_removed_or_renamed_no_condition_lists_them_all(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[int] = []

    def note(page_ids: list[str]) -> str:
        listed.append(len(page_ids))
        return ids_filter(page_ids)

    dataset = pytest.importorskip("lance").LanceDataset
    monkeypatch.setattr(dataset, "delete", lambda *_: pytest.fail("a condition lists all pages"))
    monkeypatch.setattr(store_writer, "ids_filter", note)
    monkeypatch.setattr(store_writer, "_PAGES_PER_LOOK", 4)
    with StoreWriter(uri, LINEAGE) as writer:
        writer.set_references({page_id(number): [f"{number}.pdf#1"] for number in range(12)})
        writer.remove([page_id(number) for number in range(1, 9000)])
    assert listed == [4, 4, 4]
    read_back(uri, [0])


def test_references_are_replaced_without_rewriting_prefixes(uri: str) -> None:
    files = {file: file.stat().st_mtime_ns for file in (Path(uri) / "data").iterdir()}
    with StoreWriter(uri, LINEAGE) as writer:
        writer.set_references({page_id(3): ["moved.pdf#1", "copy.pdf#1"], page_id(9): ["moved.pdf#2"]})
        assert writer.references()[page_id(3)] == ("moved.pdf#1", "copy.pdf#1")
    with PageStore.open(uri) as store:
        assert store.find("copy.pdf#1") == store.find("moved.pdf#1") == page_id(3)
        assert store.find("report.pdf#4") == page_id(4)
        with pytest.raises(StoreError, match=r"no page 'report.pdf#3' among the 12"):
            store.find("report.pdf#3")
    assert all(file.stat().st_mtime_ns == written for file, written in files.items())
    read_back(uri, list(range(12)))


def test_vectors_come_later_and_only_where_they_are_missing(uri: str) -> None:
    two = np.full((2, 4), 0.5, dtype=np.float16)
    later = replace(row(13), page=replace(row(13).page, vectors=np.ones((3, 4), np.float16)))
    with StoreWriter(uri, LINEAGE) as writer:
        with pytest.raises(StoreError, match="no column"):
            writer.append([later])
        lacking = writer.open_vectors(ORIGIN)
        assert lacking == writer.page_ids()
        writer.set_vectors(dict.fromkeys(lacking, two))
        writer.append([row(12)])
        writer.append([later])
        assert writer.open_vectors(replace(ORIGIN, source="/moved/colqwen2")) == {page_id(12)}
    with PageStore.open(uri) as store:
        assert store.info().retriever == ORIGIN
        assert store.vectors is not None
        assert store.vectors.missing() == [page_id(12)]
        first, given = store.pages([page_id(0), page_id(13)], vectors=True)
        assert first.vectors is not None
        assert given.vectors is not None
        assert first.vectors.tolist() == [[0.5] * 4] * 2
        assert given.vectors.tolist() == [[1.0] * 4] * 3
    read_back(uri, list(range(14)))


def test_a_second_writer_is_refused_until_the_first_is_done(uri: str) -> None:
    with StoreWriter(uri, LINEAGE), pytest.raises(StoreError, match=r"another process \(id \d+\) is writing"):
        StoreWriter(uri, LINEAGE)
    StoreWriter(uri, LINEAGE).close()


def test_what_a_dead_writer_left_is_swept_away(uri: str) -> None:
    orphan = Path(uri) / "data" / "0101010101010101010101010101.lance"
    scratch = Path(uri) / f".{layout.SOURCES}.k3x9"
    for left in (orphan, scratch):
        left.write_bytes(b"half a file")
    StoreWriter(uri, LINEAGE).close()
    assert not orphan.exists()
    assert not scratch.exists()
    read_back(uri, list(range(12)))


def test_a_reader_reads_on_and_knows_that_the_store_has_changed(uri: str) -> None:
    with PageStore.open(uri) as store:
        assert store.is_current()
        with StoreWriter(uri, LINEAGE) as writer:
            writer.append([row(99)])
            writer.remove([page_id(0)])
        assert not store.is_current()
        assert len(store) == 12
        assert page_id(99) not in store
        assert_same(store.read_prefixes([page_id(2)])[0], prefix(2))
    read_back(uri, [2, 99])


def test_a_directory_with_other_files_is_not_taken_over(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    for put_there_by_others in (".DS_Store", "run.trec"):  # into an empty folder, and into a store
        (mine / put_there_by_others).touch()
        StoreWriter(str(mine), LINEAGE).close()
    shutil.rmtree(mine)
    (tmp_path / "thesis.docx").write_text("years of work")
    with pytest.raises(StoreError, match=r"holds other files \(thesis.docx\)"):
        StoreWriter(str(tmp_path), LINEAGE)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.docx"]


def test_a_store_that_lost_its_versions_is_not_overwritten(uri: str) -> None:
    versions, data = Path(uri) / "_versions", Path(uri) / "data"
    held = {file.name for file in data.iterdir()}
    versions.rename(Path(uri).parent / "lost")
    with pytest.raises(StoreError, match="no version of it"):
        StoreWriter(uri, LINEAGE)
    assert {file.name for file in data.iterdir()} == held
    (Path(uri).parent / "lost").rename(versions)
    read_back(uri, list(range(12)))


def test_without_a_lock_lance_lets_two_writers_append(uri: str) -> None:
    remote = f"file-object-store://{uri}"
    with StoreWriter(remote, LINEAGE) as one, StoreWriter(remote, LINEAGE) as other:
        for number in range(20, 30, 2):
            one.append([row(number)])
            other.append([row(number + 1)])
        one.remove([page_id(0)])
        other.remove([page_id(1)])
    read_back(uri, list(range(2, 12)) + list(range(20, 30)))
    assert len(PageStore.open(uri)) == 20


_WRITE_UNTIL_FULL = """
import resource, signal, sys
from ridgerank.errors import StoreError
from ridgerank.store.store_writer import StoreWriter
from tests.store.pages import LINEAGE, ORIGIN, row

with StoreWriter(sys.argv[1], LINEAGE) as writer:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
    try:
        writer.append([row(number, positions=4000) for number in range(100, 104)])
    except StoreError as error:
        sys.exit(f"refused: {error}")
"""


def test_a_full_disk_loses_nothing_already_stored(uri: str) -> None:
    command = [sys.executable, "-c", _WRITE_UNTIL_FULL, uri]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
    )
    assert "refused: adding 4 pages" in ended.stderr, ended.stderr
    assert ".rs:" not in ended.stderr
    with StoreWriter(uri, LINEAGE) as writer:
        assert writer.page_ids() == {page_id(number) for number in range(12)}
        writer.append([row(100)])
    read_back(uri, [*range(12), 100])


def test_the_lock_writes_to_no_file_that_a_link_leads_to(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / LOCK_NAME).symlink_to(victim)
    with pytest.raises(StoreError, match="symbolic link"):
        StoreWriter(str(tmp_path / "store"), LINEAGE)
    assert victim.read_text() == "precious"
