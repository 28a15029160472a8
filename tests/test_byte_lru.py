"""Values held and read up to a number of bytes."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ridgerank.store.page_store import ByteLRU, CacheCounts


def size(held: ByteLRU[Any, bytes]) -> tuple[int, int]:
    counts = held.counts()
    return counts.pages, counts.nbytes


def test_the_least_recently_used_leaves_first() -> None:
    held: ByteLRU[str, bytes] = ByteLRU(3, count_bytes=len)
    for key in "abc":
        held.put(key, b"x")
    assert held.get("a") == b"x"
    held.put("d", b"xx")
    assert [held.get(key) for key in "abcd"] == [b"x", None, None, b"xx"]
    assert size(held) == (2, 3)


def test_a_value_larger_than_the_capacity_is_not_held_and_a_key_counts_once() -> None:
    held: ByteLRU[str, bytes] = ByteLRU(3, count_bytes=len)
    held.put("a", b"xx")
    held.put("b", b"xxxx")
    assert (held.get("a"), held.get("b"), size(held)) == (b"xx", None, (1, 2))
    held.put("a", b"yyy")
    assert (held.get("a"), size(held)) == (b"yyy", (1, 3))
    held.put("a", b"zzzzz")
    assert (held.get("a"), size(held)) == (None, (0, 0))


def test_many_threads_never_hold_more_than_the_capacity() -> None:
    held: ByteLRU[int, bytes] = ByteLRU(50, count_bytes=len)

    def put(number: int) -> int:
        held.put(number % 37, b"x" * (number % 11))
        held.get((number * 7) % 37)
        return held.counts().nbytes

    with ThreadPoolExecutor(8) as threads:
        assert max(threads.map(put, range(5000))) <= 50
    kept = [value for value in map(held.get, range(37)) if value is not None]
    assert size(held) == (len(kept), sum(map(len, kept)))


def test_hits_and_misses_are_counted() -> None:
    held: ByteLRU[str, bytes] = ByteLRU(3, count_bytes=len)
    held.put("a", b"x")
    assert [held.get(key) for key in "aab"] == [b"x", b"x", None]
    assert held.counts() == CacheCounts(hits=2, misses=1, pages=1, nbytes=1)
