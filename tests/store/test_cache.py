from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgerank.errors import StoreError
from ridgerank.store.layout import PackedPrefix, block_shape
from ridgerank.store.page_store import PageStore
from ridgerank.store.reading import PrefixCache
from tests.store.pages import assert_same, page_id, prefix

PAGE_NBYTES = block_shape(prefix(0, positions=5)).nbytes


class CountingStore:
    """Pages named by numbers, all of one size; counts what is read."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def read_prefixes(self, page_ids: Sequence[str]) -> list[PackedPrefix]:
        self.read.extend(page_ids)
        return [prefix(int(page), positions=5) for page in page_ids]


@given(
    capacity=st.integers(0, 6 * PAGE_NBYTES),
    requests=st.lists(st.lists(st.integers(0, 8).map(str), max_size=5), max_size=12),
)
def test_the_cache_never_holds_more_than_it_may_and_always_answers_right(
    capacity: int, requests: list[list[str]]
) -> None:
    source = CountingStore()
    cache = PrefixCache(source.read_prefixes, capacity_bytes=capacity)
    for request in requests:
        for page, found in zip(request, cache.read_prefixes(request), strict=True):
            assert_same(found, prefix(int(page), positions=5))
        assert cache.counts().nbytes == cache.counts().pages * PAGE_NBYTES <= capacity
    counts = cache.counts()
    assert counts.misses == len(source.read)
    assert counts.hits + counts.misses == sum(len(set(request)) for request in requests)


def test_the_page_used_longest_ago_leaves_first() -> None:
    source = CountingStore()
    cache = PrefixCache(source.read_prefixes, capacity_bytes=2 * PAGE_NBYTES)
    for page in "1", "2", "1", "3", "1", "2":
        cache.read_prefixes([page])
    assert source.read == ["1", "2", "3", "2"]


def test_a_page_wanted_by_many_threads_is_read_once() -> None:
    reading, together = Event(), Barrier(8)

    class SlowStore(CountingStore):
        def read_prefixes(self, page_ids: Sequence[str]) -> list[PackedPrefix]:
            reading.wait(5)
            return super().read_prefixes(page_ids)

    source = SlowStore()
    cache = PrefixCache(source.read_prefixes, capacity_bytes=10 * PAGE_NBYTES)

    def ask(_: int) -> PackedPrefix:
        together.wait(5)
        return cache.read_prefixes(["7"])[0]

    with ThreadPoolExecutor(8) as threads:
        answers = threads.map(ask, range(8))
        reading.set()
        assert len({id(answer) for answer in answers}) == 1
    assert source.read == ["7"]


def test_a_failed_read_is_told_and_may_be_tried_again() -> None:
    class FailingStore(CountingStore):
        def read_prefixes(self, page_ids: Sequence[str]) -> list[PackedPrefix]:
            if not self.read:
                self.read.append("failed")
                raise StoreError("the disk is gone")
            return super().read_prefixes(page_ids)

    cache = PrefixCache(FailingStore().read_prefixes, capacity_bytes=10 * PAGE_NBYTES)
    with pytest.raises(StoreError, match="gone"):
        cache.read_prefixes(["1"])
    assert_same(cache.read_prefixes(["1"])[0], prefix(1, positions=5))


def test_a_store_is_read_through_the_cache(store: PageStore) -> None:
    cache = PrefixCache(store.read_prefixes, capacity_bytes=1 << 20)
    for _ in range(2):
        for number, found in enumerate(cache.read_prefixes([page_id(number) for number in range(12)])):
            assert_same(found, prefix(number))
    assert (cache.counts().hits, cache.counts().misses) == (12, 12)
    assert cache.counts().nbytes == store.info().prefix_bytes


def test_a_negative_capacity_is_refused() -> None:
    with pytest.raises(StoreError, match="0 or more"):
        PrefixCache(CountingStore().read_prefixes, capacity_bytes=-1)
