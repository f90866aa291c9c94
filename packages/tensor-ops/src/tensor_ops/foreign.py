"""Arrays of other libraries, in and out through DLPack, without importing those libraries."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tensor_ops.arguments import DTYPES, dtype_name
from tensor_ops.resolution import CPU, function_for

if TYPE_CHECKING:
    from tensor_ops.op import Op
    from tensor_ops.state import Plan

__all__ = ["caller", "device_of", "dtype_text"]

# DLDeviceType of dlpack.h to the names that a backend's supports() is asked about.
_DEVICES = {2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 14: "oneapi"}
_HOST = (1, 3, 11)  # plain, CUDA pinned, ROCm pinned
_CUDA_MANAGED = 13


def caller(op: Op, plan: Plan) -> Callable[..., Any]:
    """Return a function that runs an op on arrays that speak DLPack.

    Host arrays are seen as NumPy arrays over the same memory and the result comes back as the
    caller's kind; device arrays go to a backend of that device as they are.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        values = op.bind(args, kwargs)
        x = values[op.first]
        device = device_of(x)
        if device != CPU:
            dtype = dtype_text(x)
            return function_for(op, plan, dtype, device)(*args, **kwargs)
        out = values.pop("out")
        for name, kind in op.kinds.items():
            if kind.is_array and values[name] is not None:
                values[name] = _view(op.name, name, values[name])
        dtype = dtype_name(op.name, op.first, values[op.first])
        function = function_for(op, plan, dtype)
        result = function(**values, out=_out_view(op.name, out))
        return _like(x, result) if out is None else out

    return call


def device_of(x: Any) -> str:
    """Return the device of an array: ``cpu``, ``cuda:0``, ..."""
    kind, index = x.__dlpack_device__()
    if kind in _HOST:
        return CPU
    name = "cuda" if kind == _CUDA_MANAGED else _DEVICES.get(int(kind), f"dlpack{int(kind)}")
    return f"{name}:{index}"


def _view(op: str, argument: str, value: Any) -> np.ndarray[Any, Any]:
    """Return a NumPy array over the memory of `value`."""
    if isinstance(value, np.ndarray):
        return value
    if not hasattr(value, "__dlpack__"):
        kind = type(value)
        raise TypeError(
            f"{op}: {argument} must be an array, got {kind.__module__}.{kind.__qualname__}"
        )
    if getattr(value, "requires_grad", False):
        raise ValueError(
            f"{op}: {argument} requires grad, and tensor_ops computes no gradients; "
            f"pass {argument}.detach()"
        )
    if device_of(value) != CPU:
        raise ValueError(
            f"{op}: {argument} is on {device_of(value)}, expected every array on one device"
        )
    if dtype_text(value) == "bfloat16":
        # NumPy's DLPack has no bfloat16; the same bits travel as uint16.
        return np.from_dlpack(value.view(_library(value).uint16)).view(DTYPES["bfloat16"])
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError) as error:
        raise TypeError(
            f"{op}: {argument} with dtype {value.dtype} cannot be seen as a NumPy array: {error}"
        ) from error


def _out_view(op: str, out: Any) -> Any:
    if isinstance(out, tuple):
        return tuple(_view(op, f"out[{index}]", each) for index, each in enumerate(out))
    return None if out is None else _view(op, "out", out)


def _like(x: Any, result: Any) -> Any:
    """Return NumPy results as the kind of array that x is, over the same memory."""
    if isinstance(result, tuple):
        return tuple(_like(x, each) for each in result)
    from_dlpack = _library(x).from_dlpack
    if result.dtype == DTYPES["bfloat16"]:
        return from_dlpack(result.view(np.uint16)).view(x.dtype)
    return from_dlpack(result)


def _library(x: Any) -> Any:
    """Return the namespace of x's library: the array API's, else the package x's type is from."""
    if hasattr(x, "__array_namespace__"):
        return x.__array_namespace__()
    return sys.modules[type(x).__module__.partition(".")[0]]


def dtype_text(x: Any) -> str:
    """Return the name of an array's dtype in any library: ``torch.float32`` is ``float32``."""
    return str(x.dtype).rpartition(".")[2]
