"""Pages looked up in an index are the pages listed, and memory of them is bounded."""

from collections.abc import Iterator

import pytest

from ridgerank.store.lance_dataset import open_dataset
from ridgerank.store.page_store import Catalog, IndexedCatalog, PageStore
from ridgerank.store.store_writer import StoreWriter
from tests.store.pages import LINEAGE, page_id, row


@pytest.fixture
def indexed(uri: str) -> Iterator[PageStore]:
    """Twelve pages that were indexed, three that came later, some of all renamed since."""
    with StoreWriter(uri, LINEAGE) as writer:
        writer.index_pages()
        writer.append([row(number) for number in range(12, 15)])
        writer.set_references({page_id(3): ["three.pdf#1", "it's.pdf#1"], page_id(13): []})
    with PageStore.open(uri) as opened:
        yield opened


def test_a_store_is_listed_until_its_pages_are_indexed(uri: str) -> None:
    assert type(PageStore.open(uri).catalog) is Catalog
    with StoreWriter(uri, LINEAGE) as writer:
        writer.index_pages()
    assert isinstance(PageStore.open(uri).catalog, IndexedCatalog)


def test_an_index_finds_what_a_list_holds(indexed: PageStore) -> None:
    opened, uri = open_dataset(indexed.uri), indexed.uri
    listed = Catalog(opened, uri)
    looked_up = indexed.catalog
    assert isinstance(looked_up, IndexedCatalog)
    ids = [page_id(number) for number in (14, 3, 0, 3, 13)]
    assert looked_up.entries(ids) == listed.entries(ids)
    columns = ["page_id", "text", "references"]
    assert looked_up.table(ids, columns).to_pylist() == listed.table(ids, columns).to_pylist()
    names = ["report.pdf#7", "report.pdf#14", "it's.pdf#1", "report.pdf#3", page_id(5), "nothing", "f" * 64]
    assert looked_up.resolve(names) == listed.resolve(names)
    assert looked_up.resolve(names) == {
        "report.pdf#7": page_id(7),
        "report.pdf#14": page_id(14),
        "it's.pdf#1": page_id(3),
        page_id(5): page_id(5),
    }


def test_no_more_pages_are_remembered_than_allowed(indexed: PageStore) -> None:
    catalog = IndexedCatalog(open_dataset(indexed.uri), indexed.uri, cached_entries=4)
    expected = Catalog(open_dataset(indexed.uri), indexed.uri)
    for first in range(0, 12, 3):
        ids = [page_id(number) for number in range(first, first + 3)]
        assert catalog.entries(ids) == expected.entries(ids)
        assert catalog.resolve([f"report.pdf#{first + 1}"])
    assert catalog._cache.counts().pages == 4
