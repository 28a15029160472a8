from pathlib import Path

import numpy as np
import pytest

from ridgerank.errors import StoreError
from ridgerank.store import layout
from ridgerank.store.layout import pack
from ridgerank.store.maintenance import find_damage
from ridgerank.store.page_store import PageStore
from ridgerank.store.store_writer import StoreWriter
from tests.store.pages import BASIS, CODED_LINEAGE, LINEAGE, ORIGIN, coded_prefix, coded_row, page_id, prefix


def flip(uri: str, content: bytes, at: int) -> None:
    """Change byte `at` of the one place in the store's files where `content` is found."""
    [file] = [file for file in (Path(uri) / "data").iterdir() if content in file.read_bytes()]
    held = bytearray(file.read_bytes())
    held[held.index(content) + at] ^= 0x10
    file.write_bytes(held)


@pytest.fixture
def coded_uri(tmp_path: Path) -> str:
    """A store of coded pages, twelve pages in two commits."""
    uri = str(tmp_path / "coded")
    with StoreWriter(uri, CODED_LINEAGE, BASIS) as writer:
        writer.append([coded_row(number) for number in range(6)])
        writer.append([coded_row(number) for number in range(6, 12)])
    return uri


@pytest.mark.parametrize(("store", "number"), [("uri", 0), ("uri", 11), ("coded_uri", 5)])
@pytest.mark.parametrize("where", [0.0, 0.05, 0.1, 0.5, 0.999])
def test_a_flipped_byte_is_found_and_its_page_named(
    request: pytest.FixtureRequest, store: str, number: int, where: float
) -> None:
    uri = request.getfixturevalue(store)
    assert list(find_damage(uri)) == []
    block = pack(prefix(number) if store == "uri" else coded_prefix(number)).tobytes()
    flip(uri, block, int(where * len(block)))
    [found] = find_damage(uri)
    assert (found.what, found.page_id) == (f"report.pdf#{number}", page_id(number))
    assert "checksum" in found.reason


def test_damage_of_names_texts_vectors_and_prefixes_is_found_not_only_the_first(uri: str) -> None:
    vectors = {page_id(number): np.full((3, 4), number + 0.5, dtype=np.float16) for number in range(12)}
    with StoreWriter(uri, LINEAGE) as writer:
        writer.set_references({page_id(4): ["renamed.pdf#5", "copy of it.pdf#5"]})
        writer.open_vectors(ORIGIN)
        writer.set_vectors(vectors)
    assert list(find_damage(uri)) == []
    flip(uri, b"renamed.pdf#5", 3)
    flip(uri, b"text of page 8text", 0)
    flip(uri, vectors[page_id(6)].tobytes(), 5)
    for number in (2, 9):
        flip(uri, pack(prefix(number)).tobytes(), 200)
    content = "its names, text or thumbnail differ from their checksum"
    assert {found.page_id: found.reason for found in find_damage(uri)} == {
        page_id(4): content,
        page_id(8): content,
        page_id(6): "its retriever vectors differ from their checksum",
        **dict.fromkeys((page_id(2), page_id(9)), "its prefix differs from its checksum"),
    }


def test_a_file_too_damaged_for_lance_is_named_and_the_others_are_still_checked(uri: str) -> None:
    flip(uri, pack(prefix(9)).tobytes(), 100)
    [cut] = [
        file for file in (Path(uri) / "data").iterdir() if pack(prefix(1)).tobytes() in file.read_bytes()
    ]
    cut.write_bytes(cut.read_bytes()[:-40] + bytes(40))
    file, page = find_damage(uri)
    assert (file.page_id, page.what) == (None, "report.pdf#9")
    assert cut.name in file.what


@pytest.mark.slow
def test_a_byte_flipped_anywhere_in_a_data_file_never_crashes_the_check(uri: str) -> None:
    file = min((Path(uri) / "data").iterdir())
    sound = file.read_bytes()
    for at in np.random.default_rng(0).integers(0, len(sound), 60):
        held = bytearray(sound)
        held[at] ^= 0x41
        file.write_bytes(held)
        assert all(found.reason for found in find_damage(uri))


def test_a_damaged_or_missing_basis_is_found_and_no_page_is_read_without_them(
    coded_uri: str,
) -> None:
    path = Path(coded_uri) / layout.BASIS
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 0x80]))
    for state in ("damaged", "missing"):
        [damage] = find_damage(coded_uri)
        assert (damage.what, damage.page_id) == (layout.BASIS, None)
        assert state in damage.reason
        with PageStore.open(coded_uri) as store, pytest.raises(StoreError, match=state):
            store.read_prefixes([page_id(1)])
        path.unlink(missing_ok=True)


def test_every_damaged_small_file_is_named(uri: str) -> None:
    lines = ["judgements/judgements.jsonl", "judgements/lists.jsonl"]
    (Path(uri) / "judgements").mkdir()
    for name in ("_sources.json", "_probe.safetensors", *lines):
        (Path(uri) / name).write_text('{"query": 1')
    named = {"_sources.json", "_probe.safetensors", *(f"{name}, line 1" for name in lines)}
    assert {damage.what for damage in find_damage(uri)} == named
