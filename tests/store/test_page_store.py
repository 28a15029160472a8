import os
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from ridgerank.errors import StoreError
from ridgerank.store.layout import block_shape
from ridgerank.store.page_store import CatalogEntry, PageStore
from ridgerank.store.reading import BlockReader, LayerStream, LocalBlockReader, RemoteBlockReader
from ridgerank.store.store_writer import StoreWriter, build_table
from tests.store.pages import LINEAGE, assert_same, page_id, prefix, row

ORDER = [7, 0, 11, 4]
IDS = [page_id(number) for number in ORDER]


def test_pages_are_found_by_id_and_by_reference(store: PageStore) -> None:
    assert store.find("report.pdf#3") == store.find(page_id(3)) == page_id(3)
    found = store.pages([page_id(9), page_id(2)])
    assert [page.text for page in found] == ["text of page 9", "text of page 2"]
    assert [page.references for page in found] == [("report.pdf#9",), ("report.pdf#2",)]
    assert found[0].thumbnail == bytes([9] * 20)


def test_the_store_tells_what_it_holds(store: PageStore) -> None:
    info = store.info()
    assert (info.pages, info.fragments, info.retriever, info.lineage) == (12, 3, None, LINEAGE)
    assert info.prefix_bytes == store.prefix_nbytes(store.page_ids()) == 12 * info.bytes_per_page


def test_prefixes_come_in_the_order_asked_for(store: PageStore) -> None:
    for number, found in zip([*ORDER, 7], store.read_prefixes([*IDS, page_id(7)]), strict=True):
        assert_same(found, prefix(number))


def test_prefixes_fill_the_memory_given(store: PageStore) -> None:
    out = np.zeros(store.prefix_nbytes(IDS) + 100, dtype=np.uint8)
    found = store.read_prefixes(IDS, out=out)
    assert all(np.shares_memory(one.keys, out) for one in found)
    assert not out[-100:].any()
    with pytest.raises(StoreError, match="for a buffer of 10"):
        store.read_prefixes(IDS, out=out[:10])
    for number, one in zip(ORDER, found, strict=True):
        assert_same(one, prefix(number))


def test_a_missing_store_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no page store at .*; make one"):
        PageStore.open(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("scheme", ["", "file://", "file-object-store://"])
def test_every_way_of_reading_gives_the_same_bytes(uri: str, scheme: str) -> None:
    with StoreWriter(uri, LINEAGE) as writer:  # deletions and column files move rows about
        writer.remove([page_id(5), page_id(8)])
        writer.set_references({page_id(4): ["renamed"]})
        writer.reclaim()
        writer.append([row(30, positions=3000)])
    with PageStore.open(scheme + uri) as store, PageStore.open(uri) as local:
        wanted = RemoteBlockReader if scheme == "file-object-store://" else LocalBlockReader
        assert isinstance(store.blocks, wanted)
        out, direct = (np.zeros(store.prefix_nbytes(store.page_ids()), dtype=np.uint8) for _ in range(2))
        store.read_prefixes(store.page_ids(), out=out)
        local.read_prefixes(store.page_ids(), out=direct)
        np.testing.assert_array_equal(out, direct)
        assert_same(store.read_prefixes([page_id(30)])[0], prefix(30, positions=3000))
        for found in store.read_prefixes([page_id(1), page_id(0), page_id(1)])[::2]:
            assert_same(found, prefix(1))


def test_small_neighbours_share_a_request_and_far_or_large_ones_do_not(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PageStore.open("file-object-store://" + uri) as store:
        ids = store.page_ids()
        ranges = store.catalog.entries(ids)
        files = len({each.address >> 32 for each in ranges})
        assert [sorted(group) for group in store.blocks.group(ranges)] != [[n] for n in range(len(ids))]
        assert len(store.blocks.group(ranges)) == files
        shuffled = [ranges[number] for number in (3, 0, 2, 1)]
        assert sorted(chain.from_iterable(store.blocks.group(shuffled))) == [0, 1, 2, 3]
        first, _, third, *_ = ranges
        monkeypatch.setattr("ridgerank.store.reading._SKIPPED_BYTES", 0)
        assert store.blocks.group([first, third]) == [[0], [1]]
        monkeypatch.setattr("ridgerank.store.reading._SHARED_BYTES", first.nbytes)
        assert len(store.blocks.group(ranges)) == len(ids)


def test_a_direct_read_equals_lances_own(store: PageStore) -> None:
    lance = pytest.importorskip("lance")
    blobs = lance.dataset(store.uri).take_blobs("prefix", indices=range(12))
    out = np.zeros(store.prefix_nbytes(store.page_ids()), dtype=np.uint8)
    store.read_prefixes(store.page_ids(), out=out)
    assert out.tobytes() == b"".join(blob.read() for blob in blobs)


def test_blobs_that_do_not_lie_in_the_data_file_are_read_by_lance(tmp_path: Path) -> None:
    lance = pytest.importorskip("lance")
    from ridgerank.store.lance_dataset import schema

    uri = str(tmp_path / "newer")
    table = build_table([row(0), row(1, positions=9000)], schema(LINEAGE))
    lance.write_dataset(table, uri, data_storage_version="2.2")
    with PageStore.open(uri) as store:
        assert isinstance(store.blocks, LocalBlockReader)
        assert store.blocks.file(store.catalog.entries([page_id(1)])[0]) is None
        assert_same(store.read_prefixes([page_id(1)])[0], prefix(1, positions=9000))


@pytest.mark.parametrize(
    ("damage", "message"),
    [(lambda file: os.truncate(file, 200), "ends within a prefix"), (Path.unlink, "open it again")],
    ids=["cut", "gone"],
)
def test_a_data_file_that_is_cut_or_gone_is_named(
    uri: str, damage: Callable[[Path], None], message: str
) -> None:
    with PageStore.open(uri) as store:
        store.prefix_nbytes(IDS)
        for file in (Path(uri) / "data").iterdir():
            damage(file)
        with pytest.raises(StoreError, match=message):
            store.read_prefixes(IDS)


def read_in_pieces(monkeypatch: pytest.MonkeyPatch, *, first_bytes: int) -> None:
    """Layers are read one at a time behind the first bytes of a page."""
    monkeypatch.setattr("ridgerank.store.reading._STEP_BYTES", 1)
    monkeypatch.setattr("ridgerank.store.reading._FIRST_BYTES", first_bytes)


HEAD_BYTES = max(block_shape(prefix(number)).layers_start for number in ORDER)
"""Header and positions of every page, without a layer of the longest."""


@pytest.mark.parametrize("first_bytes", [HEAD_BYTES, HEAD_BYTES + 300, 1 << 20])
def test_layers_stream_in_order(store: PageStore, monkeypatch: pytest.MonkeyPatch, first_bytes: int) -> None:
    read_in_pieces(monkeypatch, first_bytes=first_bytes)
    out = np.zeros(store.prefix_nbytes(IDS), dtype=np.uint8)
    with LayerStream(store, IDS, out=out) as stream:
        for number, found in zip(ORDER, stream.prefixes, strict=True):
            np.testing.assert_array_equal(found.positions, prefix(number).positions)
        for layer in range(3):
            stream.wait(layer)
            for number, found in zip(ORDER, stream.prefixes, strict=True):
                np.testing.assert_array_equal(found.keys[layer], prefix(number).keys[layer])
                np.testing.assert_array_equal(found.value_scales[layer], prefix(number).value_scales[layer])


def test_a_small_page_is_one_read(store: PageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = SlowStart(store.blocks)
    monkeypatch.setattr(store, "blocks", counted)
    with LayerStream(store, IDS) as stream:
        stream.wait(2)
    assert counted.done == len(IDS)


class SlowStart(BlockReader):
    """Reads the first layers of a prefix last, and counts the reads that are done."""

    threads = 4
    reads_whole = False

    def __init__(self, inner: BlockReader) -> None:
        self.inner = inner
        self.done = 0

    def read(self, place: CatalogEntry, start: int, out: memoryview) -> None:
        time.sleep(0.03 if 0 < start < place.nbytes // 2 else 0)
        self.inner.read(place, start, out)
        self.done += 1


def test_waiting_for_a_layer_is_waiting_for_all_before_it(
    store: PageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_in_pieces(monkeypatch, first_bytes=HEAD_BYTES)
    monkeypatch.setattr(store, "blocks", SlowStart(store.blocks))
    with LayerStream(store, IDS, out=np.zeros(store.prefix_nbytes(IDS), dtype=np.uint8)) as stream:
        stream.wait(2)
        for number, found in zip(ORDER, stream.prefixes, strict=True):
            assert_same(found, prefix(number))


def test_a_stream_left_early_writes_no_more(store: PageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    read_in_pieces(monkeypatch, first_bytes=HEAD_BYTES)
    slow = SlowStart(store.blocks)
    monkeypatch.setattr(store, "blocks", slow)
    with LayerStream(store, IDS):
        pass
    left_with = slow.done
    time.sleep(0.1)
    assert slow.done == left_with
