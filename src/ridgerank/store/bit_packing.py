"""Codes of 4, 3 and 2 bits in bytes. A byte holds one channel of neighbouring positions.

Position p of two-bit codes lies in row p // 4, shifted by 2 (p mod 4), so the rows of every fourth position
are unpacked by one shift over the whole batch, whatever the lengths of its pages, eight channels at a time as
one integer of 64 bits. Three bits are the low two bits of each code, then its high bit, eight positions to a
byte. This module knows codes only, not what they stand for.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (its usual name)


def pack_codes(codes: Tensor, bits: int) -> Tensor:
    """(…, positions, channels) uint8 codes below 2ᵇ as (…, `packed_rows`, channels) bytes."""
    if bits == 8:
        return codes
    if bits == 3:
        return torch.cat([_pack_plane(codes & 3, 2), _pack_plane(codes >> 2, 1)], dim=-2)
    return _pack_plane(codes, bits)


def unpack_codes(pages: Sequence[Tensor], counts: Sequence[int], bits: int, out: Tensor) -> None:
    """Write the codes of pages, packed as (heads, rows, channels) each, into `out` as numbers.

    `counts` are the positions of each page, `out` is (pages, heads, longest, channels). Codes behind the end
    of a shorter page are zeros.
    """
    longest = out.shape[-2]
    if bits == 8:
        out.copy_(stack_padded(pages, longest))
        return
    codes = torch.empty(out.shape, dtype=torch.uint8, device=out.device)
    if bits == 3:
        low_rows = [-(-count // 4) for count in counts]
        low = [page[..., :rows, :] for page, rows in zip(pages, low_rows, strict=True)]
        high = [page[..., rows:, :] for page, rows in zip(pages, low_rows, strict=True)]
        _unpack_three(stack_padded(low, 2 * -(-longest // 8)), stack_padded(high, -(-longest // 8)), codes)
    else:
        _unpack_plane(stack_padded(pages, -(-longest * bits // 8)), bits, codes)
    out.copy_(codes)


def stack_padded(parts: Sequence[Tensor], length: int) -> Tensor:
    """(pages, heads, length, …) from (heads, at most `length`, …) each, padded with zeros."""
    return torch.stack(
        [F.pad(part, (0, 0, 0, length - part.shape[1])) if part.shape[1] < length else part for part in parts]
    )


def _pack_plane(codes: Tensor, bits: int) -> Tensor:
    per_byte = 8 // bits
    padding = -codes.shape[-2] % per_byte
    padded = F.pad(codes, (0, 0, 0, padding))
    rows = padded.view(*padded.shape[:-2], -1, per_byte, padded.shape[-1])
    packed = torch.zeros_like(rows[..., 0, :])
    for index in range(per_byte):
        packed |= rows[..., index, :] << (bits * index)
    return packed


def _unpack_plane(packed: Tensor, bits: int, codes: Tensor) -> None:
    per_byte = 8 // bits
    packed_words, words = _as_words(packed), _as_words(codes)
    mask = _in_every_byte((1 << bits) - 1, words)
    for index in range(per_byte):
        rows = words[..., index::per_byte, :]
        torch.bitwise_and(packed_words[..., : rows.shape[-2], :] >> (bits * index), mask, out=rows)


def _unpack_three(low: Tensor, high: Tensor, codes: Tensor) -> None:
    """Two bits of four positions to a byte, and one bit of eight, which goes to the third bit of its code."""
    low_words, high_words, words = _as_words(low), _as_words(high), _as_words(codes)
    low_mask, high_mask = _in_every_byte(3, words), _in_every_byte(4, words)
    for index in range(8):
        rows = words[..., index::8, :]
        of_low = low_words[..., index // 4 :: 2, :][..., : rows.shape[-2], :] >> 2 * (index % 4)
        of_high = high_words[..., : rows.shape[-2], :]
        of_high = of_high >> index - 2 if index >= 2 else of_high << 2 - index
        torch.bitwise_or(of_low.bitwise_and_(low_mask), of_high.bitwise_and_(high_mask), out=rows)


def _as_words(x: Tensor) -> Tensor:
    """Eight bytes of the last axis as one number where it can be divided so, else the bytes."""
    return x.view(torch.int64) if x.shape[-1] % 8 == 0 else x


def _in_every_byte(mask: int, words: Tensor) -> int:
    """The mask in each byte of a word: what a shift moves in from the neighbouring byte is dropped, too."""
    return mask * 0x0101010101010101 if words.dtype == torch.int64 else mask
