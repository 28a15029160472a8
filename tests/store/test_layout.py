import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgerank.errors import ArtifactError, StoreError
from ridgerank.store import layout
from ridgerank.store.layout import PackedPrefix
from tests.store.pages import assert_same, prefix


@given(
    number=st.integers(0, 10),
    layers=st.integers(1, 4),
    positions=st.integers(1, 40),
    head_dim=st.integers(1, 9),
)
def test_what_is_packed_is_unpacked(number: int, layers: int, positions: int, head_dim: int) -> None:
    wanted = prefix(number, layers=layers, positions=positions, head_dim=head_dim)
    assert_same(layout.unpack(layout.pack(wanted)), wanted)


def test_scales_of_another_type_are_refused() -> None:
    found = prefix(1)
    wrong = replace(found, key_scales=found.key_scales.astype(np.float32))
    with pytest.raises(StoreError, match=r"key_scales are float32 .* wanted uint16"):
        layout.pack(wrong)


def test_the_bytes_are_those_of_the_documented_format() -> None:
    wanted = PackedPrefix(
        keys=np.array([[[[1, -1]]], [[[2, -2]]]], dtype=np.int8),
        values=np.array([[[[3, -3]]], [[[4, -4]]]], dtype=np.int8),
        key_scales=np.array([[[101, 102]], [[103, 104]]], dtype=np.uint16),
        value_scales=np.array([[[105]], [[106]]], dtype=np.uint16),
        positions=np.array([7], dtype=np.int32),
        visual=np.array([True]),
        next_position=11,
        grid=(1, 3),
    )

    def padded(content: bytes) -> bytes:
        return content.ljust(64, b"\0")

    def layer(key: int, value: int, *scales: int) -> bytes:
        codes = [struct.pack("<bb", code, -code) for code in (key, value)]
        return b"".join(map(padded, [*codes, struct.pack("<2H", *scales[:2]), struct.pack("<H", scales[2])]))

    header = b"RRPREFIX" + struct.pack("<9I", 1, 2, 2, 1, 1, 2, 11, 1, 3) + bytes(4) + struct.pack("<Q", 704)
    expected = [padded(header), padded(struct.pack("<i", 7)), padded(b"\1")]
    expected += [layer(1, 3, 101, 102, 105), layer(2, 4, 103, 104, 106)]
    assert layout.pack(wanted).tobytes() == b"".join(expected)


def test_unpacking_copies_nothing() -> None:
    block = layout.pack(prefix(3))
    found = layout.unpack(block)
    for array in (
        found.keys,
        found.values,
        found.key_scales,
        found.value_scales,
        found.positions,
        found.visual,
    ):
        assert np.shares_memory(array, block)


def test_every_array_starts_on_a_multiple_of_64() -> None:
    spans = layout.array_spans(layout.block_shape(prefix(2))).values()
    assert all(span.offset % layout.ALIGNMENT == 0 for span in spans)
    assert all(span.strides[0] % layout.ALIGNMENT == 0 for span in spans if len(span.shape) > 1)


@pytest.mark.parametrize(("kv_heads", "a_position"), [(4, 21_504), (2, 10_752)])
def test_a_page_of_the_paper_takes_the_bytes_of_its_arithmetic(kv_heads: int, a_position: int) -> None:
    """Qwen2.5-VL-7B and GLM-4.1V-9B at layer 21, a third of 1280 visual positions."""
    kept = 1280 // 3
    block = layout.BlockShape(
        layers=21, kv_heads=kv_heads, positions=kept, head_dim=128, next_position=0, grid=(32, 40)
    )
    assert 1.0 < block.nbytes / (kept * a_position) < 1.03


@pytest.mark.parametrize("cut", [0, 10, 64, 500])
def test_a_cut_block_is_refused(cut: int) -> None:
    with pytest.raises(StoreError, match="bytes"):
        layout.unpack(layout.pack(prefix(1))[:cut])


def test_a_block_of_something_else_is_refused() -> None:
    with pytest.raises(StoreError, match="starts with"):
        layout.unpack(bytes(64))


def test_a_block_of_another_format_is_refused() -> None:
    block = layout.pack(prefix(1))
    block[8] = 9
    with pytest.raises(ArtifactError, match="format 9, wanted 1"):
        layout.unpack(block)


def test_arrays_that_disagree_are_refused_by_name() -> None:
    found = prefix(1)
    broken = PackedPrefix(
        keys=found.keys,
        values=found.values[:, :, 1:],
        key_scales=found.key_scales,
        value_scales=found.value_scales,
        positions=found.positions,
        visual=found.visual,
        next_position=0,
        grid=(1, 1),
    )
    with pytest.raises(StoreError, match="values are int8"):
        layout.pack(broken)


@given(at=st.integers(0, 10_000), flip=st.integers(1, 255))
def test_any_flipped_byte_changes_the_checksum(at: int, flip: int) -> None:
    block = layout.pack(prefix(1))
    before = layout.checksum("id", "text", b"thumb", block)
    block[at % block.size] ^= flip
    assert layout.checksum("id", "text", b"thumb", block) != before


def test_the_checksum_tells_where_one_part_ends() -> None:
    assert layout.checksum("ab", "c", b"", b"") != layout.checksum("a", "bc", b"", b"")
