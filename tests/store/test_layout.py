import struct
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgerank.errors import ArtifactError, RidgeRankError, StoreError
from ridgerank.lineage import WIDTHS, NumberFormat
from ridgerank.store import layout
from ridgerank.store.layout import BlockShape, PackedPrefix
from tests.store.pages import SHARED, assert_same, packed_prefix, prefix

PACKED = NumberFormat(4, 3, 8)


@given(
    number=st.integers(0, 10),
    layers=st.integers(1, 4),
    positions=st.integers(1, 40),
    head_dim=st.integers(1, 9),
)
def test_what_is_packed_is_unpacked(number: int, layers: int, positions: int, head_dim: int) -> None:
    wanted = prefix(number, layers=layers, positions=positions, head_dim=head_dim)
    assert_same(layout.unpack(layout.pack(wanted)), wanted)


@given(
    keys=st.sampled_from(WIDTHS),
    values=st.sampled_from([4, 3, 2, 1]),
    group=st.sampled_from([None, 8, 32]),
    positions=st.integers(2, 40),
    head_dim=st.integers(1, 9),
    with_shared=st.booleans(),
)
def test_packed_numbers_of_any_width_are_unpacked(
    keys: int, values: int, group: int | None, positions: int, head_dim: int, with_shared: bool
) -> None:
    shared = SHARED if with_shared else None
    numbers = NumberFormat(keys, values, group)
    wanted = packed_prefix(3, numbers, positions=positions, head_dim=head_dim, shared=shared)
    assert_same(layout.unpack(layout.pack(wanted), shared=shared), wanted)


def test_the_cells_of_a_page_are_counted_behind_the_shared_positions() -> None:
    for shared in (SHARED, None):
        assert packed_prefix(1, PACKED, positions=6, shared=shared).cells.tolist() == [0, 3, 6, 9]


def test_a_block_without_its_shared_positions_is_refused() -> None:
    block = layout.pack(packed_prefix(1, PACKED))
    with pytest.raises(
        StoreError, match="without the 2 positions before its page, of which the store holds 0"
    ):
        layout.unpack(block)


@pytest.mark.parametrize(("at", "value"), [(44, 5), (45, 0), (46, 1), (60, 1), (64, 0), (24, 9)])
def test_a_header_that_contradicts_itself_is_refused(at: int, value: int) -> None:
    block = layout.pack(packed_prefix(1, PACKED))
    block[at] = value
    with pytest.raises(StoreError, match="the store is damaged"):
        layout.unpack(block, shared=SHARED)


@pytest.mark.parametrize("group", [None, 32])
@pytest.mark.parametrize(("key_bits", "value_bits"), [(8, 8), (8, 4), (3, 3), (4, 2)])
def test_pages_take_the_bytes_of_their_arithmetic(key_bits: int, value_bits: int, group: int | None) -> None:
    """Qwen2.5-VL-7B at layer 21, a sixth of 1280 visual positions and the instruction."""
    kept, heads, dim, layers = 1280 // 6 + 27, 4, 128, 21
    numbers = NumberFormat(key_bits, value_bits, group)
    block = BlockShape(layers, heads, kept, dim, 0, (32, 40), numbers, shared=15, total=1322)
    codes = layers * heads * kept * dim * (key_bits + value_bits) / 8
    key_steps = layers * heads * dim * (1 if group is None else kept / group)
    value_steps = layers * heads * kept * (1 if group is None else dim / group)
    step_bytes = 2 if numbers.symmetric else 4
    assert 1.0 < block.nbytes / (codes + step_bytes * (key_steps + value_steps)) < 1.03


def test_the_bytes_are_those_of_the_documented_format() -> None:
    wanted = PackedPrefix(
        keys=np.array([[[[1, -1]]], [[[2, -2]]]], dtype=np.int8),
        values=np.array([[[[3, -3]]], [[[4, -4]]]], dtype=np.int8),
        key_scales=np.array([[[101, 102]], [[103, 104]]], dtype=np.uint16),
        value_scales=np.array([[[105]], [[106]]], dtype=np.uint16),
        positions=np.array([2], dtype=np.int32),
        visual=np.array([True]),
        next_position=11,
        grid=(1, 3),
    )

    def padded(content: bytes) -> bytes:
        return content.ljust(16, b"\0")

    def layer(key: int, value: int, *scales: int) -> bytes:
        codes = [struct.pack("<bb", code, -code) for code in (key, value)]
        return b"".join(map(padded, [*codes, struct.pack("<2H", *scales[:2]), struct.pack("<H", scales[2])]))

    header = b"RRPREFIX" + struct.pack("<9I", 1, 2, 2, 1, 1, 2, 11, 1, 3)
    header += struct.pack("<BBHQII", 8, 8, 0, 224, 0, 3)
    expected = [header, padded(b"\4"), padded(b"\4")]
    expected += [layer(1, 3, 101, 102, 105), layer(2, 4, 103, 104, 106)]
    assert layout.pack(wanted).tobytes() == b"".join(expected)


def test_unpacking_copies_nothing() -> None:
    block = layout.pack(prefix(3))
    found = layout.unpack(block)
    for array in (found.keys, found.values, found.key_scales, found.value_scales):
        assert np.shares_memory(array, block)


@pytest.mark.parametrize("cut", [0, 10, 64, 500])
def test_a_cut_block_is_refused(cut: int) -> None:
    with pytest.raises(StoreError, match="bytes"):
        layout.unpack(layout.pack(prefix(1))[:cut])


def test_a_block_of_something_else_or_of_another_format_is_refused() -> None:
    with pytest.raises(StoreError, match="starts with"):
        layout.unpack(bytes(64))
    block = layout.pack(prefix(1))
    block[8] = 9
    with pytest.raises(ArtifactError, match="format 9, expected 1:"):
        layout.unpack(block)


def test_arrays_that_disagree_are_refused_by_name() -> None:
    found = prefix(1)
    with pytest.raises(StoreError, match=r"values are int8 .*, expected"):
        layout.pack(replace(found, values=found.values[:, :, 1:]))
    with pytest.raises(StoreError, match=r"key_scales are float32 .*, expected"):
        layout.pack(replace(found, key_scales=found.key_scales.astype(np.float32)))


def test_the_checksum_tells_where_one_part_ends() -> None:
    assert layout.checksum("ab", "c", b"", b"") != layout.checksum("a", "bc", b"", b"")


@settings(max_examples=300, deadline=None)
@given(
    flips=st.lists(st.tuples(st.integers(0, 63), st.integers(1, 255)), max_size=4), end=st.integers(0, 200)
)
def test_a_changed_or_cut_block_is_read_or_refused(flips: list[tuple[int, int]], end: int) -> None:
    whole = layout.pack(prefix(0)).tobytes()
    block = bytearray(whole if end > 100 else whole[:end])
    for at, mask in flips:
        if at < len(block):
            block[at] ^= mask
    with suppress(RidgeRankError):
        layout.unpack(bytes(block))
