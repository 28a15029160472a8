from collections.abc import Iterator
from pathlib import Path

import pytest

from ridgerank.store.page_store import PageStore
from ridgerank.store.store_writer import StoreWriter
from tests.store.pages import LINEAGE, row


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A store of twelve pages, 0 to 11, in three commits."""
    place = str(tmp_path / "store")
    with StoreWriter(place, LINEAGE) as writer:
        for first in range(0, 12, 4):
            writer.append([row(number) for number in range(first, first + 4)])
    return place


@pytest.fixture
def store(uri: str) -> Iterator[PageStore]:
    with PageStore.open(uri) as opened:
        yield opened
