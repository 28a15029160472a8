"""Products in float32 where a CPU has no half-precision units: the weights stay small, the time does too.

Without them a product in bfloat16 runs at an eighth of the speed of float32. So large products are taken in
float32, of one matrix at a time, and rounded back: sums are kept in float32 either way. Small products stay
as they are, since converting a matrix would cost as much as they do.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (its usual name)
from torch.overrides import TorchFunctionMode

_PRODUCTS = {F.linear, F.conv3d, torch.mm, torch.addmm}
_LEAST_ROWS = 32
"""A product of fewer rows costs less than converting its matrix."""


def wide_products(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[object]:
    """Take large half-precision products in float32 inside the `with`, where this machine gains by it."""
    if device.type != "cpu" or dtype == torch.float32 or _has_units(dtype):
        return nullcontext()
    return _Widened()


def _has_units(dtype: torch.dtype) -> bool:
    supported = {
        torch.bfloat16: torch.ops.mkldnn._is_mkldnn_bf16_supported,
        torch.float16: torch.ops.mkldnn._is_mkldnn_fp16_supported,
    }
    return dtype in supported and bool(supported[dtype]())


class _Widened(TorchFunctionMode):
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 (whatever the function gives)
        options = dict(kwargs or {})
        tensors = [each for each in args if isinstance(each, Tensor)]
        if func not in _PRODUCTS or not tensors or not _is_large_half(tensors):
            return func(*args, **options)
        out = options.pop("out", None)
        product: Tensor = func(*map(_widen, args), **{name: _widen(value) for name, value in options.items()})
        return product.to(tensors[0].dtype) if out is None else out.copy_(product)


def _is_large_half(tensors: Sequence[Tensor]) -> bool:
    """Whether the first matrix, behind a bias if there is one, is of half precision and of many rows."""
    first = next((each for each in tensors if each.dim() > 1), tensors[0])
    rows = first.numel() // max(first.shape[-1], 1)
    return first.dtype in (torch.bfloat16, torch.float16) and rows >= _LEAST_ROWS


def _widen(value: Any) -> Any:  # noqa: ANN401 (a tensor, or anything else)
    return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value
