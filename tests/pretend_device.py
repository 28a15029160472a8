"""A device that is not there: tensors that say they are on `cuda`, compute here, and raise where a GPU would.

It knows of devices what ordinary code trips over: operands on two devices, `.numpy()` of a device's memory,
what is written into it from the host. It knows nothing of kernels, memory or time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

CUDA, CPU = torch.device("cuda"), torch.device("cpu")
_CROSSES = {"to", "copy_", "cpu", "cuda", "type", "__set__", "_has_compatible_shallow_copy_type"}
"""What may read one device and write another."""
_HOST_INDEX = {"__getitem__"}
"""What takes an index from the host, as CUDA does."""
_HOST_ONLY = {"numpy", "__array__", "data_ptr"}


class OnDevice(Tensor):
    """A tensor of the pretend device."""

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 (whatever the function gives)
        return run(func, args, dict(kwargs or {}))


class _Mode(TorchFunctionMode):
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 (whatever the function gives)
        return run(func, args, dict(kwargs or {}))


def run(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
    """Call a function of torch here; what it makes is where CUDA would have it."""
    if func is torch.device:
        return func(*args, **kwargs)
    name = getattr(func, "__name__", "")
    owner = getattr(func, "__self__", None)
    tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
    there = [each for each in tensors if isinstance(each, OnDevice)]
    if name == "__get__" and there:
        known = {Tensor.device: CUDA, Tensor.is_cuda: True, Tensor.is_cpu: False}
        if owner in known:
            return known[owner]
    if there and name in _HOST_ONLY and name != "data_ptr":
        raise TypeError(f"can't convert cuda:0 device type tensor to numpy ({name}); use .cpu() first")
    asked = [each for each in tree_leaves((args, kwargs)) if _is_device(each)]
    asked += [each for each in (kwargs.get("device"), *args[1:2]) if each in ("cuda", "cpu")]
    if name not in _CROSSES and name != "__get__":
        _require_one_device(name, args, kwargs, there)
    here = [_on_host(each) for each in (args, kwargs)]
    with torch._C.DisableTorchFunctionSubclass():
        made = func(*here[0], **here[1])
    target = _target(name, asked, args, there)
    if target is None:
        return made
    return tree_map(lambda each: _move(each, target) if isinstance(each, Tensor) else each, made)


def _is_device(value: object) -> bool:
    return isinstance(value, torch.device)


def _on_host(value: Any) -> Any:  # noqa: ANN401
    """Arguments without their device: the computation is here."""

    def convert(each: Any) -> Any:  # noqa: ANN401
        if each == "cuda" if isinstance(each, str) else _is_device(each) and each.type == "cuda":
            return CPU
        return each

    return tree_map(convert, value)


def _target(
    name: str, asked: list[Any], args: tuple[Any, ...], there: Sequence[Tensor]
) -> torch.device | None:
    if name in ("cpu", "tolist", "item"):
        return CPU
    if asked:
        return torch.device(asked[0])
    if name in ("copy_", "__set__", "__setitem__", "to", "type_as") and args and isinstance(args[0], Tensor):
        like = args[1] if name == "to" and len(args) > 1 and isinstance(args[1], Tensor) else args[0]
        return CUDA if isinstance(like, OnDevice) else CPU
    return CUDA if there else None


def _move(tensor: Tensor, device: torch.device) -> Tensor:
    with torch._C.DisableTorchFunctionSubclass():
        if device.type == "cuda":
            return tensor if isinstance(tensor, OnDevice) else tensor.as_subclass(OnDevice)
        return tensor.as_subclass(Tensor) if isinstance(tensor, OnDevice) else tensor


def _require_one_device(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], there: Sequence[Tensor]
) -> None:
    if not there:
        return
    checked: tuple[Any, ...] = args
    if name in _HOST_INDEX and isinstance(args[0], OnDevice):
        return
    if name == "__setitem__":
        checked = (args[0], args[2])
    for each in tree_leaves((checked, kwargs)):
        if (
            isinstance(each, Tensor)
            and not isinstance(each, OnDevice)
            and (each.dim() or name == "__setitem__")
        ):
            raise RuntimeError(f"{name}: expected all tensors to be on one device, but found cuda:0 and cpu")


@contextmanager
def pretend_cuda() -> Iterator[list[str]]:
    """Inside, `cuda` is there; the list names how often the device was waited for."""
    waited: list[str] = []
    overwrites = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    begin = Thread.run

    def run_thread(thread: Thread) -> None:
        with _Mode():  # it holds for one thread
            begin(thread)

    with pytest.MonkeyPatch.context() as patch, _Mode():
        patch.setattr(Thread, "run", run_thread)
        patch.setattr(torch.cuda, "is_available", lambda: True)
        patch.setattr(torch.cuda, "synchronize", lambda *_: waited.append("synchronize"))
        yield waited
    torch.__future__.set_overwrite_module_params_on_conversion(overwrites)
