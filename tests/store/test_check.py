from pathlib import Path

import numpy as np
import pytest

from ridgerank.store.check import find_damage
from ridgerank.store.layout import pack
from ridgerank.store.store_writer import StoreWriter
from tests.store.pages import LINEAGE, ORIGIN, page_id, prefix


def flip(uri: str, content: bytes, at: int) -> None:
    """Change byte `at` of the one place in the store's files where `content` is found."""
    [file] = [file for file in (Path(uri) / "data").iterdir() if content in file.read_bytes()]
    held = bytearray(file.read_bytes())
    held[held.index(content) + at] ^= 0x10
    file.write_bytes(held)


def test_a_sound_store_has_no_damage(uri: str) -> None:
    assert list(find_damage(uri)) == []


@pytest.mark.parametrize("number", [0, 5, 11])
@pytest.mark.parametrize("where", [0.0, 0.1, 0.5, 0.999])
def test_a_flipped_byte_is_found_and_its_page_named(uri: str, number: int, where: float) -> None:
    block = pack(prefix(number)).tobytes()
    flip(uri, block, int(where * len(block)))
    [found] = find_damage(uri)
    assert (found.what, found.page_id) == (f"report.pdf#{number}", page_id(number))
    assert "checksum" in found.reason


def test_a_changed_text_is_found(uri: str) -> None:
    flip(uri, b"text of page 4text", 0)
    assert [found.what for found in find_damage(uri)] == ["report.pdf#4"]


def test_a_changed_vector_is_found(uri: str) -> None:
    vectors = {page_id(number): np.full((3, 4), number + 0.5, dtype=np.float16) for number in range(12)}
    with StoreWriter(uri, LINEAGE) as writer:
        writer.open_vectors(ORIGIN)
        writer.set_vectors(vectors)
    assert list(find_damage(uri)) == []
    flip(uri, vectors[page_id(6)].tobytes(), 5)
    [found] = find_damage(uri)
    assert (found.what, found.reason) == ("report.pdf#6", "its retriever vectors differ from their checksum")


def test_all_damage_is_found_not_only_the_first(uri: str) -> None:
    for number in (2, 3, 9):
        flip(uri, pack(prefix(number)).tobytes(), 200)
    assert [found.what for found in find_damage(uri)] == ["report.pdf#2", "report.pdf#3", "report.pdf#9"]


def test_a_file_too_damaged_for_lance_is_named_and_the_others_are_still_checked(uri: str) -> None:
    flip(uri, pack(prefix(9)).tobytes(), 100)
    [cut] = [
        file for file in (Path(uri) / "data").iterdir() if pack(prefix(1)).tobytes() in file.read_bytes()
    ]
    cut.write_bytes(cut.read_bytes()[:-40] + bytes(40))
    file, page = find_damage(uri)
    assert (file.page_id, page.what) == (None, "report.pdf#9")
    assert cut.name in file.what


def test_a_byte_flipped_anywhere_in_a_data_file_never_crashes_the_check(uri: str) -> None:
    file = min((Path(uri) / "data").iterdir())
    sound = file.read_bytes()
    for at in np.random.default_rng(0).integers(0, len(sound), 60):
        held = bytearray(sound)
        held[at] ^= 0x41
        file.write_bytes(held)
        assert all(found.reason for found in find_damage(uri))
