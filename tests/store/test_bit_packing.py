"""Codes survive packing, whatever their width and however long the pages of a batch are."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ridgerank.store.codec import pack_codes, unpack_codes
from ridgerank.store.storage_setting import VALUE_WIDTHS, packed_rows


@given(
    bits=st.sampled_from(VALUE_WIDTHS),
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    channels=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_codes_of_pages_of_any_length_come_back_from_their_bytes(
    bits: int, counts: list[int], channels: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    pages = [
        torch.randint(0, 1 << bits, (2, count, channels), generator=generator, dtype=torch.uint8)
        for count in counts
    ]
    packed = [pack_codes(codes, bits) for codes in pages]
    assert [page.shape[1] for page in packed] == [packed_rows(count, bits) for count in counts]
    unpacked = torch.full((len(pages), 2, max(counts), channels), -1.0)
    unpack_codes(packed, counts, bits, unpacked)
    for row, (codes, count) in enumerate(zip(pages, counts, strict=True)):
        assert torch.equal(unpacked[row, :, :count], codes.float())
        assert not unpacked[row, :, count:].any()


def test_a_byte_holds_one_channel_of_neighbouring_positions() -> None:
    codes = torch.tensor([[[1], [2], [3]]], dtype=torch.uint8)
    assert pack_codes(codes, 4).flatten().tolist() == [1 + (2 << 4), 3]
    assert pack_codes(codes, 2).flatten().tolist() == [1 + (2 << 2) + (3 << 4)]
    assert pack_codes(codes & 1, 1).flatten().tolist() == [0b101]
    assert pack_codes(codes + 3, 3).flatten().tolist() == [0 + (1 << 2) + (2 << 4), 0b111]


@pytest.mark.parametrize("bits", VALUE_WIDTHS)
def test_memory_behind_the_pages_is_not_touched(bits: int) -> None:
    codes = torch.ones(2, 5, 3, dtype=torch.uint8)
    memory = torch.full((1, 2, 9, 3), 7.0, dtype=torch.bfloat16)
    unpack_codes([pack_codes(codes, bits)], [5], bits, memory[:, :, :5])
    assert (memory[:, :, :5] == 1).all()
    assert (memory[:, :, 5:] == 7).all()
