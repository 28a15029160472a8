import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ridgerank.errors import StoreError, UnreadablePages
from ridgerank.store.layout import pack
from ridgerank.store.page_store import PageStore
from ridgerank.store.store_writer import StoreWriter
from tests.store.pages import LINEAGE, ORIGIN, assert_same, page_id, prefix, row

ORDER = [7, 0, 11, 4]
IDS = [page_id(number) for number in ORDER]


def test_a_store_tells_what_it_holds_and_finds_pages_by_id_and_by_reference(store: PageStore) -> None:
    assert store.find("report.pdf#3") == store.find(page_id(3)) == page_id(3)
    found = store.pages([page_id(9), page_id(2)])
    assert [page.text for page in found] == ["text of page 9", "text of page 2"]
    assert [page.references for page in found] == [("report.pdf#9",), ("report.pdf#2",)]
    assert found[0].thumbnail == bytes([9] * 20)
    info = store.info()
    assert (info.pages, info.fragments, info.retriever, info.lineage) == (12, 3, None, LINEAGE)
    assert info.prefix_bytes == 12 * info.bytes_per_page


def test_prefixes_come_in_the_order_asked_for(store: PageStore) -> None:
    for number, found in zip([*ORDER, 7], store.read_prefixes([*IDS, page_id(7)]), strict=True):
        assert_same(found, prefix(number))


def test_a_missing_store_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no page store at .*; make one"):
        PageStore.open(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("scheme", ["", "file://", "file-object-store://"])
def test_pages_are_read_wherever_their_rows_have_moved(uri: str, scheme: str) -> None:
    with StoreWriter(uri, LINEAGE) as writer:  # deletions and column files move rows about
        writer.remove([page_id(5), page_id(8)])
        writer.set_references({page_id(4): ["renamed"]})
        writer.reclaim()
        writer.append([row(30, positions=3000)])
    with PageStore.open(scheme + uri) as store:
        for number in (4, 0, 11):
            assert_same(store.read_prefixes([page_id(number)])[0], prefix(number))
        assert_same(store.read_prefixes([page_id(30)])[0], prefix(30, positions=3000))
        for found in store.read_prefixes([page_id(1), page_id(0), page_id(1)])[::2]:
            assert_same(found, prefix(1))


@pytest.mark.parametrize("damage", [lambda file: os.truncate(file, 200), Path.unlink], ids=["cut", "gone"])
def test_a_data_file_that_is_cut_or_gone_is_named(uri: str, damage: Callable[[Path], None]) -> None:
    with PageStore.open(uri) as store:
        store.catalog.entries(IDS)
        for file in (Path(uri) / "data").iterdir():
            damage(file)
        with pytest.raises(StoreError, match="reading pages of the page store at"):
            store.read_prefixes(IDS)


def test_damaged_pages_and_pages_without_a_prefix_are_named_and_remembered(uri: str) -> None:
    with StoreWriter(uri, LINEAGE) as writer:
        writer.append([replace(row(20), prefix=None)])
        assert writer.pending() == {page_id(20)}
    block = pack(prefix(4)).tobytes()
    [file] = [file for file in (Path(uri) / "data").iterdir() if block in file.read_bytes()]
    content = file.read_bytes()
    file.write_bytes(content.replace(block, block[:-64] + bytes(64)))
    with PageStore.open(uri) as store:
        assert store.find("report.pdf#20") == page_id(20)
        assert store.texts()[page_id(20)] == "text of page 20"
        with pytest.raises(UnreadablePages, match=r"report.pdf#4 \(damaged: .*report.pdf#20 \(not encoded"):
            store.read_prefixes([page_id(3), page_id(4), page_id(20)])
        assert set(store.unreadable) == {page_id(4), page_id(20)}
        assert_same(store.read_prefixes([page_id(3)])[0], prefix(3))


def test_a_pending_page_is_completed_with_the_vectors_it_had(uri: str) -> None:
    vectors = np.full((2, 4), 0.5, dtype=np.float16)
    with StoreWriter(uri, LINEAGE) as writer:
        writer.append([replace(row(20), prefix=None)])
        writer.open_vectors(ORIGIN)
        writer.set_vectors({page_id(20): vectors})
    with StoreWriter(uri, LINEAGE) as writer:
        writer.append([row(20), row(21)])
        assert not writer.pending()
    with PageStore.open(uri) as store:
        assert len(store) == 14
        assert_same(store.read_prefixes([page_id(20)])[0], prefix(20))
        [page] = store.pages([page_id(20)], vectors=True)
        assert page.vectors is not None
        assert page.vectors.tolist() == vectors.tolist()
