"""Values held up to a number of bytes."""

from concurrent.futures import ThreadPoolExecutor

from ridgerank.byte_lru import ByteLRU


def test_the_least_recently_used_leaves_first() -> None:
    held: ByteLRU[str, bytes] = ByteLRU(3, count_bytes=len)
    for key in "abc":
        held.put(key, b"x")
    assert held.get("a") == b"x"
    held.put("d", b"xx")
    assert [held.get(key) for key in "abcd"] == [b"x", None, None, b"xx"]
    assert held.size() == (2, 3)


def test_a_value_larger_than_the_capacity_is_not_held_and_evicts_nothing() -> None:
    held: ByteLRU[str, bytes] = ByteLRU(2, count_bytes=len)
    held.put("a", b"xx")
    held.put("b", b"xxx")
    assert (held.get("a"), held.get("b"), held.size()) == (b"xx", None, (1, 2))


def test_a_key_held_twice_counts_once() -> None:
    held: ByteLRU[str, bytes] = ByteLRU(4, count_bytes=len)
    held.put("a", b"xxx")
    held.put("a", b"yy")
    assert (held.get("a"), held.size()) == (b"yy", (1, 2))
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
