"""Keys and values as codes of 8, 4, 3 or 2 bits, values also of one.

The paper's int8 is symmetric: one scale per key channel and one per value position.

A key channel keeps its size from position to position and differs from its neighbours, so its scale runs
along the positions: with a few outlying channels, as trained key biases have, a scale per position instead
made the error of the keys six times larger and that of the state at layer 21 four times. Values measured
the same either way; their outliers sit in single positions, so the scale runs along the channels. Scales
are bfloat16: two bytes with float32's range. Codes are taken against the rounded scale, so rounding it
costs nothing but a step at most 0.4 % wider.

Fewer bits have no code to waste: codes then run from a minimum to a maximum, and groups of numbers may share
them instead of a whole channel or position. One bit is another matter: smallest and largest number would
stand for none of those between them, so its two levels are the means of the numbers above the mean and of
the others. How the bytes lie on disk is decided elsewhere.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

CODE_MAX = 127
SCALE_DTYPE = torch.bfloat16
QUANTIZATION = "int8, bfloat16 scale per key channel and value position"
PACKED_QUANTIZATION = "packed codes, bfloat16 step and minimum per group of a key channel or value position"
"""What a lineage records: of the paper's int8, and of all other numbers."""


def quantize_keys(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Codes (layers, kv_heads, positions, head_dim) and scales (layers, kv_heads, 1, head_dim)."""
    return _quantize(keys, dim=-2)


def quantize_values(values: Tensor) -> tuple[Tensor, Tensor]:
    """Codes (layers, kv_heads, positions, head_dim) and scales (layers, kv_heads, positions, 1)."""
    return _quantize(values, dim=-1)


def _quantize(x: Tensor, *, dim: int) -> tuple[Tensor, Tensor]:
    """Round x / s to integers in [−127, 127], s = max |x| / 127 along `dim`, rounded to `SCALE_DTYPE`.

    A scale rounded down by 2⁻⁹ leaves |x / s| below 127.25, which still rounds to 127: the error is at most
    half a step everywhere.
    """
    x = x.float()
    scales = (x.abs().amax(dim=dim, keepdim=True) / CODE_MAX).to(SCALE_DTYPE)
    steps = scales.float()
    codes = torch.where(steps > 0, x / steps, 0.0).round_().clamp_(-CODE_MAX, CODE_MAX)
    return codes.to(torch.int8), scales


@dataclass(frozen=True, slots=True, eq=False)
class GroupCodes:
    """Numbers as minimum + code × step, in groups along one dimension."""

    codes: Tensor
    """uint8, of the shape of the numbers."""
    steps: Tensor
    """bfloat16, with the number of groups in place of the grouped dimension."""
    minima: Tensor
    """bfloat16, of the shape of `steps`."""


def quantize_groups(x: Tensor, *, bits: int, dim: int, group: int | None) -> GroupCodes:
    """Round (x − minimum) / step to integers in [0, 2ᵇ − 1], in groups of `group` along `dim`; None is one.

    The minimum is rounded down and the step up, so that the range of the codes covers every number and the
    error is at most half a step everywhere. The two levels of one bit cover no range: there it may be more.
    """
    x = x.float()
    size = x.shape[dim]
    parts = [
        _quantize_group(x.narrow(dim, start, min(group or size, size - start)), bits, dim)
        for start in range(0, size, group or max(size, 1))
    ]
    return GroupCodes(
        codes=torch.cat([part.codes for part in parts], dim=dim),
        steps=torch.cat([part.steps for part in parts], dim=dim),
        minima=torch.cat([part.minima for part in parts], dim=dim),
    )


def restore_groups(x: Tensor, steps: Tensor, minima: Tensor, *, dim: int, group: int | None) -> None:
    """Turn codes into numbers, in place: minimum + code × step, with `steps` as `quantize_groups` gives them.

    `dim` is counted from the end.
    """
    if group is None:
        _restore(x, steps, minima)
        return
    size = x.shape[dim]
    whole = size // group
    if whole:
        part = x.narrow(dim, 0, whole * group)
        grouped: Tensor = part.unflatten(dim, (whole, group))  # type: ignore[no-untyped-call]
        minimum, step = (scale.narrow(dim, 0, whole).unsqueeze(dim) for scale in (minima, steps))
        _restore(grouped, step, minimum)
    if size > whole * group:
        last = x.narrow(dim, whole * group, size - whole * group)
        minimum, step = (scale.narrow(dim, whole, 1) for scale in (minima, steps))
        _restore(last, step, minimum)


def _restore(x: Tensor, steps: Tensor, minima: Tensor) -> None:
    if steps.shape[-1] == 1:  # one step for a whole row: the fused operation takes four times as long
        x.mul_(steps).add_(minima)
    else:
        torch.addcmul(minima, x, steps, out=x)


def _quantize_group(x: Tensor, bits: int, dim: int) -> GroupCodes:
    if bits == 1:
        return _quantize_to_two_levels(x, dim)
    largest = (1 << bits) - 1
    minima = _round_down(x.amin(dim=dim, keepdim=True))
    steps = -_round_down((minima.float() - x.amax(dim=dim, keepdim=True)) / largest).float()
    codes = torch.where(steps > 0, (x - minima.float()) / steps, 0.0).round_().clamp_(0, largest)
    return GroupCodes(codes.to(torch.uint8), steps.to(SCALE_DTYPE), minima)


def _quantize_to_two_levels(x: Tensor, dim: int) -> GroupCodes:
    """Each number as the nearer of two: the mean of those above the group's mean, and that of the others."""
    above = x > x.mean(dim=dim, keepdim=True)
    low, high = (
        torch.where(members, x, 0.0).sum(dim=dim, keepdim=True)
        / members.sum(dim=dim, keepdim=True).clamp_min(1)
        for members in (~above, above)
    )
    high = torch.where(above.any(dim=dim, keepdim=True), high, low)
    minima, steps = low.to(SCALE_DTYPE), (high - low).to(SCALE_DTYPE)
    codes = x > minima.float() + steps.float() / 2
    return GroupCodes(codes.to(torch.uint8), steps, minima)


def _round_down(x: Tensor) -> Tensor:
    """The largest `SCALE_DTYPE` numbers that are not above x."""
    bits = x.contiguous().view(torch.int32)
    # Dropping the low half of a float32's bits rounds towards zero, which is up for negative numbers.
    bits = torch.where(x < 0, bits + 0xFFFF, bits) & ~0xFFFF
    return bits.view(torch.float32).to(SCALE_DTYPE)
