"""Values held and read up to a number of bytes."""

from concurrent.futures import ThreadPoolExecutor

from ridgerank.store.page_store import ByteLRU, CacheCounts


def test_the_least_recently_used_leaves_first() -> None:
    held: ByteLRU[str, bytes] = ByteLRU(3, count_bytes=len)
    for key in "abc":
        held.put(key, b"x")
    assert held.get("a") == b"x"
    held.put("d", b"xx")
    assert [held.get(key) for key in "abcd"] == [b"x", None, None, b"xx"]
    assert held.counts() == CacheCounts(hits=3, misses=2, pages=2, nbytes=3)
    # A value larger than the capacity is not held, and a key counts once.
    held = ByteLRU(3, count_bytes=len)
    held.put("a", b"xx")
    held.put("b", b"xxxx")
    assert (held.get("a"), held.get("b"), held.counts().nbytes) == (b"xx", None, 2)
    held.put("a", b"yyy")
    assert (held.get("a"), held.counts().nbytes) == (b"yyy", 3)
    held.put("a", b"zzzzz")
    assert (held.get("a"), held.counts().nbytes) == (None, 0)


def test_many_threads_never_hold_more_than_the_capacity() -> None:
    held: ByteLRU[int, bytes] = ByteLRU(50, count_bytes=len)

    def put(number: int) -> int:
        held.put(number % 37, b"x" * (number % 11))
        held.get((number * 7) % 37)
        return held.counts().nbytes

    with ThreadPoolExecutor(8) as threads:
        assert max(threads.map(put, range(5000))) <= 50
    kept = [value for value in map(held.get, range(37)) if value is not None]
    assert held.counts().nbytes == sum(map(len, kept))
