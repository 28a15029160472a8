"""Values held and read up to a number of bytes."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgerank.errors import StoreError
from ridgerank.store.reading import ByteLRU, LoadingCache


def test_the_least_recently_used_leaves_first() -> None:
    held: ByteLRU[str, bytes] = ByteLRU(3, count_bytes=len)
    for key in "abc":
        held.put(key, b"x")
    assert held.get("a") == b"x"
    held.put("d", b"xx")
    assert [held.get(key) for key in "abcd"] == [b"x", None, None, b"xx"]
    assert held.size() == (2, 3)


def test_a_value_larger_than_the_capacity_is_not_held_and_a_key_counts_once() -> None:
    held: ByteLRU[str, bytes] = ByteLRU(3, count_bytes=len)
    held.put("a", b"xx")
    held.put("b", b"xxxx")
    assert (held.get("a"), held.get("b"), held.size()) == (b"xx", None, (1, 2))
    held.put("a", b"yyy")
    assert (held.get("a"), held.size()) == (b"yyy", (1, 3))
    held.put("a", b"zzzzz")
    assert (held.get("a"), held.size()) == (None, (0, 0))


def test_many_threads_never_hold_more_than_the_capacity() -> None:
    held: ByteLRU[int, bytes] = ByteLRU(50, count_bytes=len)

    def put(number: int) -> int:
        held.put(number % 37, b"x" * (number % 11))
        held.get((number * 7) % 37)
        return held.size()[1]

    with ThreadPoolExecutor(8) as threads:
        assert max(threads.map(put, range(5000))) <= 50
    kept = [value for value in map(held.get, range(37)) if value is not None]
    assert held.size() == (len(kept), sum(map(len, kept)))


class Source:
    """Values of ten bytes each; counts what is read."""

    def __init__(self) -> None:
        self.reads: list[int] = []

    def read(self, keys: Sequence[int]) -> list[bytes]:
        self.reads.extend(keys)
        return [bytes([key] * 10) for key in keys]


@given(capacity=st.integers(0, 60), requests=st.lists(st.lists(st.integers(0, 8), max_size=5), max_size=12))
def test_a_cache_never_holds_more_than_it_may_and_always_answers_right(
    capacity: int, requests: list[list[int]]
) -> None:
    source = Source()
    cache = LoadingCache[int, bytes](capacity, count_bytes=len)
    for request in requests:
        assert cache.read(request, source.read) == [bytes([key] * 10) for key in request]
        assert cache.counts().nbytes == cache.counts().pages * 10 <= capacity
    counts = cache.counts()
    assert counts.misses == len(source.reads)
    assert counts.hits + counts.misses == sum(len(set(request)) for request in requests)


def test_a_value_that_many_threads_need_is_read_once() -> None:
    reading, together = Event(), Barrier(8)

    class SlowSource(Source):
        def read(self, keys: Sequence[int]) -> list[bytes]:
            reading.wait(5)
            return super().read(keys)

    source = SlowSource()
    cache = LoadingCache[int, bytes](100, count_bytes=len)

    def ask(_: int) -> bytes:
        together.wait(5)
        return cache.read([7], source.read)[0]

    with ThreadPoolExecutor(8) as threads:
        answers = threads.map(ask, range(8))
        reading.set()
        assert len({id(answer) for answer in answers}) == 1
    assert source.reads == [7]


def test_a_failed_read_raises_and_may_be_tried_again() -> None:
    class FailingSource(Source):
        def read(self, keys: Sequence[int]) -> list[bytes]:
            if not self.reads:
                self.reads.append(-1)
                raise StoreError("the disk is gone")
            return super().read(keys)

    source = FailingSource()
    cache = LoadingCache[int, bytes](100, count_bytes=len)
    with pytest.raises(StoreError, match="gone"):
        cache.read([1], source.read)
    assert cache.read([1], source.read) == [bytes([1] * 10)]
