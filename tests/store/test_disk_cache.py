"""A cache on disk: bounded, never wrong, shared, and indifferent to how its writers died."""

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ridgerank.errors import StoreError
from ridgerank.store.disk_cache import DiskCache
from ridgerank.store.page_store import PageStore
from tests.store.pages import assert_same, page_id, prefix


def block(number: int, nbytes: int = 1000) -> NDArray[np.uint8]:
    return np.random.default_rng(number).integers(0, 256, nbytes, dtype=np.uint8)


def key(number: int) -> str:
    return f"{number:02d}" + "a" * 62


def used(cache: DiskCache) -> int:
    return sum(path.stat().st_size for path in cache.folder.glob("??/*"))


def age(cache: DiskCache, number: int, seconds: int) -> None:
    """Make a page one that was last used long ago."""
    [path] = cache.folder.glob(f"??/{key(number)}*")
    os.utime(path, (path.stat().st_atime - seconds, path.stat().st_mtime - seconds))


def test_what_was_put_is_there_in_this_process_and_the_next(tmp_path: Path) -> None:
    DiskCache(tmp_path, capacity_bytes=10_000).put(key(1), block(1))
    again = DiskCache(tmp_path, capacity_bytes=10_000)
    np.testing.assert_array_equal(again.get(key(1), 1000), block(1))
    assert again.get(key(2), 1000) is None
    assert (again.counts().hits, again.counts().misses, again.counts().pages) == (1, 1, 1)


@pytest.mark.parametrize("harm", ["cut", "altered", "longer", "another's", "empty"])
def test_a_damaged_file_is_no_hit_and_goes(tmp_path: Path, harm: str) -> None:
    cache = DiskCache(tmp_path, capacity_bytes=10_000)
    cache.put(key(1), block(1))
    cache.put(key(2), block(2))
    [path] = tmp_path.glob(f"??/{key(1)}*")
    content = bytearray(path.read_bytes())
    [other] = tmp_path.glob(f"??/{key(2)}*")
    damaged: dict[str, bytes | bytearray] = {
        "cut": content[:-1],
        "altered": content[:500] + bytes([content[500] ^ 1]) + content[501:],
        "longer": content + b"0",
        "another's": other.read_bytes(),
        "empty": b"",
    }
    path.write_bytes(damaged[harm])
    assert cache.get(key(1), 1000) is None
    assert not path.exists()
    np.testing.assert_array_equal(cache.get(key(2), 1000), block(2))


def test_the_folder_never_holds_more_than_its_capacity_and_the_least_used_leave(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, capacity_bytes=10_500)
    for number in range(10):
        cache.put(key(number), block(number))
        age(cache, number, 1000 - number)
    assert cache.get(key(0), 1000) is not None  # used again, so it stays
    for number in range(10, 40):
        cache.put(key(number), block(number))
        age(cache, number, 500 - number)
        assert used(cache) <= 10_500
    assert cache.get(key(0), 1000) is not None
    assert cache.get(key(1), 1000) is None
    assert cache.get(key(39), 1000) is not None


def test_what_a_killed_writer_left_counts_and_leaves(tmp_path: Path) -> None:
    (tmp_path / "zz").mkdir()
    (tmp_path / "zz" / f".{key(7)}.prefix.k1ll3d").write_bytes(bytes(9000))
    os.utime(tmp_path / "zz" / f".{key(7)}.prefix.k1ll3d", (1, 1))
    cache = DiskCache(tmp_path, capacity_bytes=10_000)
    cache.put(key(1), block(1))
    assert used(cache) == 1016
    cache.put(key(2), block(2, nbytes=20_000))
    assert cache.get(key(2), 20_000) is None  # larger than the whole cache: passed through


def test_two_caches_on_one_folder_notice_each_other(tmp_path: Path) -> None:
    one, other = (DiskCache(tmp_path, capacity_bytes=20_000) for _ in range(2))
    for number in range(30):
        (one, other)[number % 2].put(key(number), block(number))
        assert used(one) <= 1.1 * 20_000
    assert any(one.get(key(number), 1000) is not None for number in range(1, 30, 2))


def test_a_store_read_through_a_cache_gives_the_same_prefixes(uri: str, tmp_path: Path) -> None:
    ids = [page_id(number) for number in range(12)]
    cache = DiskCache(tmp_path / "cache", capacity_bytes=1_000_000)
    for hits in (0, 12):
        with PageStore.open(uri, disk=cache) as store:
            for number, found in enumerate(store.read_prefixes(ids)):
                assert_same(found, prefix(number))
        assert (cache.counts().hits, cache.counts().misses) == (hits, 12)


def test_a_cache_without_room_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="wanted at least 1"):
        DiskCache(tmp_path, capacity_bytes=0)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="name another folder"):
        DiskCache(tmp_path / "file", capacity_bytes=10)
