"""Tensors as the arrays that backends take: the same memory, without autograd."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tensor_ops.extension import CPU, DTYPES, Op, Route

__all__ = [
    "DTYPE_NAMES",
    "EXCHANGES",
    "HALF",
    "array_names",
    "as_numpy",
    "device_route",
    "dtype_name",
    "taking_arrays",
]

DTYPE_NAMES = {getattr(torch, name): name for name in DTYPES}
# Beside an `x` of these, weights, residuals and angles may be float32.
HALF = frozenset({torch.float16, torch.bfloat16})
# This PyTorch has DLPack's C exchange API, by which a backend takes tensors as they are.
EXCHANGES = hasattr(Tensor, "__dlpack_c_exchange_api__")


def array_names(op: Op) -> list[str]:
    """Return the names of the arguments that are arrays, which come before the scalars."""
    return [name for name, kind in op.kinds.items() if kind.is_array]


def dtype_name(op: str, argument: str, tensor: Tensor) -> str:
    """Return the name of a dtype, or raise TypeError, naming those that are supported."""
    name = DTYPE_NAMES.get(tensor.dtype)
    if name is None:
        expected = ", ".join(map(str, DTYPE_NAMES))
        raise TypeError(
            f"{op}: {argument} has dtype {tensor.dtype}, expected one of {expected}; "
            f"convert it with {argument}.to(...)"
        )
    return name


def device_route(op: Op, device: torch.device) -> Route:
    """Return the route of an op for tensors that stay on a device."""
    if device.type == "cpu":
        return _route(op, CPU)
    kind = "rocm" if device.type == "cuda" and torch.version.hip else device.type
    return _route(op, f"{kind}:{device.index or 0}")


@cache
def _route(op: Op, device: str) -> Route:
    return Route(op, device, in_place=True)


def as_numpy(tensor: Tensor) -> np.ndarray[Any, Any]:
    """Return a NumPy array over the memory of a CPU tensor."""
    bare = tensor.detach()
    if bare.dtype is torch.bfloat16:
        # NumPy's own types have no bfloat16; the same bits travel as int16.
        return _view(bare.view(torch.int16)).view(DTYPES["bfloat16"])
    return _view(bare)


@cache
def taking_arrays(op: Op, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of CPU tensors that gives NumPy arrays to a backend's function."""
    outputs = op.outputs

    def call(*args: Any, out: Any, **scalars: Any) -> Any:
        arrays = [as_numpy(each) if isinstance(each, Tensor) else each for each in args]
        over = as_numpy(out) if outputs == 1 else tuple(map(as_numpy, out))
        function(*arrays, **scalars, out=over)
        return out

    return call


class _Exported:
    """A tensor as NumPy asks for one, without the Python around it."""

    __slots__ = ("_tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **_: Any) -> Any:
        return torch._C._to_dlpack_versioned(self._tensor)


def _view(tensor: Tensor) -> np.ndarray[Any, Any]:
    return np.from_dlpack(_Exported(tensor))


if not hasattr(torch._C, "_to_dlpack_versioned"):
    # Before torch 2.9. After it the memory cannot be freed early, as FSDP2 does with parameters.
    def _view(tensor: Tensor) -> np.ndarray[Any, Any]:
        return tensor.numpy()
