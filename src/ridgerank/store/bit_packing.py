"""Codes of 4, 3, 2 and 1 bits in bytes. A byte holds one channel of neighbouring positions.

Position p of two-bit codes lies in row p // 4, shifted by 2 (p mod 4), so one shift by (0, 2, 4, 6) unpacks
the rows of all pages, whatever their lengths, eight channels at a time as one integer of 64 bits. Three bits
are the low two bits of each code, then its high bit, eight positions to a byte. This module knows codes only,
not what they stand for.
"""

from collections.abc import Sequence
from functools import cache

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
        copy_padded(pages, out)
        return
    if bits == 3:
        low, high = _stack_planes(pages, counts, longest)
        words = _unpack_plane(low, 2)
        words.add_(_unpack_plane(high, 1)[..., : words.shape[-2], :], alpha=4)
    else:
        words = _unpack_plane(stack_padded(pages, -(-longest * bits // 8)), bits)
    out.copy_(words.view(torch.uint8)[..., :longest, :])


def copy_padded(pages: Sequence[Tensor], out: Tensor) -> None:
    """Write pages of (heads, at most longest, channels) each into `out` as numbers, and zeros behind them."""
    if out.device.type != "cpu":  # few kernels rather than few bytes
        out.copy_(stack_padded(pages, out.shape[-2]))
        return
    for page, memory in zip(pages, out, strict=True):
        if page.shape[1] == memory.shape[1]:
            memory.copy_(page)
        else:
            memory[:, : page.shape[1]] = page
            memory[:, page.shape[1] :] = 0


def stack_padded(parts: Sequence[Tensor], length: int) -> Tensor:
    """(pages, heads, length, …) from (heads, at most `length`, …) each, padded with zeros."""
    return torch.stack(
        [F.pad(part, (0, 0, 0, length - part.shape[1])) if part.shape[1] < length else part for part in parts]
    )


def _stack_planes(pages: Sequence[Tensor], counts: Sequence[int], longest: int) -> tuple[Tensor, Tensor]:
    """The low two bits of three-bit codes and their high bits, of all pages."""
    low_rows = [-(-count // 4) for count in counts]
    if set(counts) == {longest}:  # as pages of one size are: two parts of one tensor, not two for each page
        stacked = torch.stack(list(pages))
        return stacked[..., : low_rows[0], :], stacked[..., low_rows[0] :, :]
    low = [page[..., :rows, :] for page, rows in zip(pages, low_rows, strict=True)]
    high = [page[..., rows:, :] for page, rows in zip(pages, low_rows, strict=True)]
    return stack_padded(low, -(-longest // 4)), stack_padded(high, -(-longest // 8))


def _pack_plane(codes: Tensor, bits: int) -> Tensor:
    per_byte = 8 // bits
    padding = -codes.shape[-2] % per_byte
    padded = F.pad(codes, (0, 0, 0, padding))
    rows = padded.view(*padded.shape[:-2], -1, per_byte, padded.shape[-1])
    packed = torch.zeros_like(rows[..., 0, :])
    for index in range(per_byte):
        packed |= rows[..., index, :] << (bits * index)
    return packed


def _unpack_plane(packed: Tensor, bits: int) -> Tensor:
    """(…, rows, channels) bytes as (…, rows × 8 / bits, channels) codes, in words of eight where possible."""
    words = _as_words(packed)
    shifted = words.unsqueeze(-2) >> _shifts(bits, words.dtype, words.device)
    return shifted.bitwise_and_(_in_every_byte((1 << bits) - 1, words)).flatten(-3, -2)


@cache
def _shifts(bits: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.arange(0, 8, bits, dtype=dtype, device=device).unsqueeze(-1)


def _as_words(x: Tensor) -> Tensor:
    """Eight bytes of the last axis as one number where it can be divided so, else the bytes."""
    return x.view(torch.int64) if x.shape[-1] % 8 == 0 else x


def _in_every_byte(mask: int, words: Tensor) -> int:
    """The mask in each byte of a word: what a shift moves in from the neighbouring byte is dropped, too."""
    return mask * 0x0101010101010101 if words.dtype == torch.int64 else mask
