import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgerank.errors import ArtifactError, RidgeRankError, StoreError
from ridgerank.lineage import Keep, StorageSetting
from ridgerank.store import layout
from ridgerank.store.layout import Basis, PackedPrefix
from tests.store.pages import BASIS, assert_same, coded_prefix, prefix


@given(
    number=st.integers(0, 10),
    layers=st.integers(1, 4),
    positions=st.integers(1, 40),
    head_dim=st.integers(1, 9),
)
def test_int8_pages_survive_their_bytes(number: int, layers: int, positions: int, head_dim: int) -> None:
    page = prefix(number, layers=layers, positions=positions, head_dim=head_dim)
    assert_same(layout.unpack(layout.pack(page)), page)


@given(number=st.integers(0, 10), positions=st.integers(4, 40))
def test_coded_pages_survive_their_bytes(number: int, positions: int) -> None:
    page = coded_prefix(number, positions=positions)
    block = layout.pack(page)
    assert block.tobytes() == layout.pack(page).tobytes()
    assert_same(layout.unpack(block, basis=BASIS), page)
    assert page.cells.tolist() == list(range(0, 3 * (positions - 2), 3))  # the shared positions do not count


def test_a_basis_survives_its_file_and_has_one_digest() -> None:
    turned = replace(BASIS, frequencies=np.ones((4, 3)).T * [[1.0], [2.0], [3.0]])
    for basis in (BASIS, turned):
        found = Basis.from_bytes(basis.to_bytes())
        assert found.to_bytes() == basis.to_bytes()
        np.testing.assert_array_equal(found.frequencies, basis.frequencies)
        for group, expected in zip(found.groups, basis.groups, strict=True):
            for name in ("mean", "rows", "steps", "tail_steps"):
                np.testing.assert_array_equal(getattr(group, name), getattr(expected, name))
        assert (found.limits, found.lost, found.rank) == (basis.limits, basis.lost, basis.rank)
    assert layout.digest_basis(BASIS.to_bytes()) != layout.digest_basis(turned.to_bytes())
    with pytest.raises(StoreError, match="a basis that cannot be read"):
        Basis.from_bytes(BASIS.to_bytes()[:50])


def test_a_coded_block_without_its_basis_is_refused() -> None:
    with pytest.raises(StoreError, match="follows 2 positions that the store does not hold"):
        layout.unpack(layout.pack(coded_prefix(1)))


def test_int8_pages_take_the_bytes_of_their_arithmetic() -> None:
    """Qwen2.5-VL-7B at layer 21, a third of 1280 visual positions and the instruction."""
    shape = layout.MODEL_SHAPES["qwen2.5-vl-7b"]
    counted = layout.count_page_bytes(shape, StorageSetting(Keep(), 21))
    assert 1.0 < counted / (21 * 2 * 4 * 128 * (427 + 43)) < 1.03
    tiny = replace(shape, kv_heads=2, head_dim=8, page_positions=15, before_page=2, after_page=1)
    kept = np.array([0, 1, 3, 6, 9, 12, 15, 17], dtype=np.int32)
    page = prefix(0, positions=8)
    page = replace(page, positions=kept, visual=(kept > 1) & (kept < 17), grid=(3, 5))
    assert len(layout.pack(page)) == layout.count_page_bytes(tiny, StorageSetting(Keep(), 3))


def test_the_bytes_are_those_of_the_documented_format() -> None:
    page = PackedPrefix(
        {
            "keys": np.array([[[[1, -1]]], [[[2, -2]]]], dtype=np.int8),
            "values": np.array([[[[3, -3]]], [[[4, -4]]]], dtype=np.int8),
            "key_scales": np.array([[[101, 102]], [[103, 104]]], dtype=np.uint16),
            "value_scales": np.array([[[105]], [[106]]], dtype=np.uint16),
        },
        shape=(2, 1, 2),
        positions=np.array([2], dtype=np.int32),
        visual=np.array([True]),
        next_position=11,
        grid=(1, 3),
    )
    body = struct.pack("<6H8b2B", 101, 102, 103, 104, 105, 106, 1, -1, 2, -2, 3, -3, 4, -4, 4, 4)
    header = b"RRPREFIX" + struct.pack("<12IfI", 1, 0, 2, 1, 1, 2, 11, 1, 3, 0, 3, 0, 0.0, len(body))
    assert layout.pack(page).tobytes() == header + body
    coded = coded_prefix(1, positions=4)
    block = layout.pack(coded).tobytes()
    assert block[:12] == b"RRPREFIX" + struct.pack("<I", 1)
    codes = coded.arrays["codes"].tobytes() + coded.arrays["tail_codes"].tobytes()
    rotary = struct.pack("<4i", 2, 3, 3, 1)
    whole = struct.pack("<i", 0) + coded.arrays["whole_vectors"].tobytes()
    decoded = zstandard.ZstdDecompressor().decompress(block[64:], max_output_size=1 << 20)
    assert decoded == rotary + whole + codes + bytes([0b00100100, 0b11, 0b00100100, 0])


def test_a_block_of_something_else_or_of_another_format_is_refused() -> None:
    with pytest.raises(StoreError, match="starts with"):
        layout.unpack(bytes(64))
    block = layout.pack(prefix(1)).copy()
    block[8] = 9
    with pytest.raises(ArtifactError, match="format 9, expected 1:"):
        layout.unpack(block)


def test_the_checksum_tells_where_one_part_ends() -> None:
    assert layout.checksum("ab", ["c"], "", "", b"") != layout.checksum("a", ["bc"], "", "", b"")
    assert layout.checksum("a", ["b", "c"], "", "", b"") != layout.checksum("a", ["b"], "", "c", b"")


@settings(max_examples=300, deadline=None)
@given(
    make=st.sampled_from([prefix, coded_prefix]),
    flips=st.lists(st.tuples(st.integers(0, 90), st.integers(1, 255)), max_size=4),
    end=st.integers(0, 200),
)
def test_a_changed_or_cut_block_is_read_or_refused(
    make: Callable[[int], PackedPrefix], flips: list[tuple[int, int]], end: int
) -> None:
    whole = layout.pack(make(0)).tobytes()
    block = bytearray(whole if end > 100 else whole[:end])
    for at, mask in flips:
        if at < len(block):
            block[at] ^= mask
    with suppress(RidgeRankError):
        layout.unpack(bytes(block), basis=BASIS)
