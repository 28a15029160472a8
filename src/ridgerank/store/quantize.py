"""Keys and values as int8: symmetric, one scale per key channel and one per value position.

A key channel keeps its size from position to position and differs from its neighbours, so its scale runs
along the positions: with a few outlying channels, as trained key biases have, a scale per position instead
made the error of the keys six times larger and that of the state at layer 21 four times. Values measured
the same either way; their outliers sit in single positions, so the scale runs along the channels. Scales
are bfloat16: two bytes with float32's range. Codes are taken against the rounded scale, so rounding it
costs nothing but a step at most 0.4 % wider. How the bytes lie on disk is decided elsewhere.
"""

import torch
from torch import Tensor

CODE_MAX = 127
SCALE_DTYPE = torch.bfloat16
QUANTIZATION = "int8, bfloat16 scale per key channel and value position"
"""What a lineage records."""


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
