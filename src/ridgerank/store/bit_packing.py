"""Codes of 4, 3 and 2 bits in bytes. A byte holds one channel of neighbouring positions.

Position p of two-bit codes lies in row p // 4, shifted by 2 (p mod 4), so the rows of every fourth position
are unpacked by one shift over the whole batch, whatever the lengths of its pages. Three bits are the low two
bits of each code, then its high bit, eight positions to a byte. This module knows codes only, not what they
stand for.
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
    elif bits == 3:
        low_rows = [-(-count // 4) for count in counts]
        low = [page[..., :rows, :] for page, rows in zip(pages, low_rows, strict=True)]
        high = [page[..., rows:, :] for page, rows in zip(pages, low_rows, strict=True)]
        codes = torch.empty(out.shape, dtype=torch.uint8, device=out.device)
        _unpack_plane(stack_padded(low, -(-longest // 4)), 2, codes)
        _add_high_bits(stack_padded(high, -(-longest // 8)), codes)
        out.copy_(codes)
    else:
        _unpack_plane(stack_padded(pages, -(-longest * bits // 8)), bits, out)


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


def _unpack_plane(packed: Tensor, bits: int, out: Tensor) -> None:
    per_byte, mask = 8 // bits, (1 << bits) - 1
    for index in range(per_byte):
        rows = out[..., index::per_byte, :]
        shifted = packed[..., : rows.shape[-2], :] >> (bits * index)
        # Behind the last shift of a byte nothing is left to mask.
        rows.copy_(shifted if index == per_byte - 1 else shifted.bitwise_and_(mask))


def _add_high_bits(packed: Tensor, codes: Tensor) -> None:
    for index in range(8):
        rows = codes[..., index::8, :]
        rows |= (packed[..., : rows.shape[-2], :] >> index).bitwise_and_(1) << 2
