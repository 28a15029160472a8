from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from ridgerank.documents.sources import digest_bytes, digest_file, file_page_id, image_page_id


def test_ids_are_256_bits_in_hex() -> None:
    assert len(file_page_id(b"\0" * 32, 1)) == 64
    assert int(file_page_id(b"\0" * 32, 1), 16) > 0


@given(numbers=st.sets(st.integers(1, 10**6), min_size=2, max_size=2))
def test_pages_of_a_file_have_ids_of_their_own(numbers: set[int]) -> None:
    first, second = numbers
    assert file_page_id(b"\0" * 32, first) != file_page_id(b"\0" * 32, second)


def test_digest_depends_on_every_byte_of_a_file_longer_than_a_read(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"\0" * 3_000_000)
    before = digest_file(path)
    path.write_bytes(b"\0" * 2_999_999 + b"\1")
    assert digest_file(path) != before


def test_images_of_the_same_bytes_but_another_shape_or_mode_have_other_ids() -> None:
    images = [Image.new("RGB", (4, 6)), Image.new("RGB", (6, 4)), Image.new("L", (12, 6))]
    assert len({image.tobytes() for image in images}) == 1
    assert len({image_page_id(image, "") for image in images}) == 3


def test_the_text_is_part_of_the_id_of_an_image() -> None:
    image = Image.new("RGB", (4, 6))
    assert image_page_id(image, "one") != image_page_id(image, "two")
    assert image_page_id(image, "one") == image_page_id(image.copy(), "one")


def test_a_file_in_memory_has_the_digest_it_has_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "scan"
    path.write_bytes(b"some bytes")
    assert digest_bytes(b"some bytes") == digest_file(path)
