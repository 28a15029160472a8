"""A changed bit in the files that say what a store holds is an error, not another answer."""

from pathlib import Path

import pytest

from ridgerank.errors import StoreError
from ridgerank.store import layout
from ridgerank.store.maintenance import find_damage
from ridgerank.store.page_store import PageStore
from ridgerank.store.store_writer import StoreWriter
from tests.store.pages import LINEAGE, page_id, row


def newest_version(uri: str) -> Path:
    return min(Path(uri).glob("_versions/*.manifest"))


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def test_every_changed_bit_of_the_newest_version_is_refused_and_named(uri: str) -> None:
    path = newest_version(uri)
    for bit in range(0, 8 * path.stat().st_size, 97):
        flip(path, bit)
        with pytest.raises(StoreError, match=r"is damaged: .*manifest is not as it was written"):
            PageStore.open(uri)
        flip(path, bit)
    PageStore.open(uri).close()


def test_the_check_names_older_versions_and_lists_of_removed_rows(uri: str) -> None:
    with StoreWriter(uri, LINEAGE) as writer:
        writer.remove([page_id(3)])
    assert list(find_damage(uri)) == []
    older = max(Path(uri).glob("_versions/*.manifest"))
    [deletions] = (Path(uri) / "_deletions").iterdir()
    for path in (older, deletions):
        flip(path, 99)
        assert [damage.what for damage in find_damage(uri)] == [f"file {path.relative_to(uri)}"]
        flip(path, 99)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"files": {}, "digest": "0"}', b"[" * 100_000, b"\xff"])
def test_damage_to_the_digests_themselves_is_named_and_locks_nobody_out(uri: str, content: bytes) -> None:
    (Path(uri) / layout.SEALS).write_bytes(content)
    PageStore.open(uri).close()
    assert [damage.what for damage in find_damage(uri)] == [f"file {layout.SEALS}"]
    StoreWriter(uri, LINEAGE).close()
    assert list(find_damage(uri)) == []


def test_a_version_without_a_digest_is_read(uri: str) -> None:
    (Path(uri) / layout.SEALS).unlink()
    assert list(find_damage(uri)) == []
    with StoreWriter(uri, LINEAGE) as writer:
        writer.append([row(20)])
    assert (Path(uri) / layout.SEALS).exists()
