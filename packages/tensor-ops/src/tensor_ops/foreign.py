"""Arrays of other libraries, in and out through DLPack, without importing those libraries."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tensor_ops.arguments import DTYPES, dtype_name
from tensor_ops.resolution import CPU, exchanges_arrays, function_for, host_function

if TYPE_CHECKING:
    from tensor_ops.op import Op
    from tensor_ops.state import Plan

__all__ = ["caller", "dtype_and_device", "is_foreign"]

# DLDeviceType of dlpack.h to the names that a backend's supports() is asked about.
_DEVICES = {2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 14: "oneapi"}
_HOST = (1, 3, 11)  # plain, CUDA pinned, ROCm pinned
_CUDA_MANAGED = 13


def is_foreign(value: Any) -> bool:
    """Return whether a value is an array of another library than NumPy that speaks DLPack."""
    return (
        not isinstance(value, np.ndarray)
        and hasattr(value, "__dlpack__")
        and hasattr(value, "__dlpack_device__")
    )


def caller(op: Op, plan: Plan) -> Callable[..., Any]:
    """Return a function that runs an op on arrays that speak DLPack.

    Host arrays are seen as NumPy arrays over the same memory and the result comes back as the
    caller's kind; device arrays go to a backend of that device as they are.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        taking = _taking_as_is(op, plan, args, kwargs)
        if taking is not None:
            try:
                return taking(*args, **kwargs)
            except (TypeError, ValueError):
                pass  # said below, in the words that hold for every backend
        values = op.bind(args, kwargs)
        x = values[op.first]
        device = _device(op.name, op.first, x)
        if device != CPU:
            dtype = _device_dtype(op.name, op.first, x)
            return function_for(op, plan, dtype, device)(*args, **kwargs)
        out = values.pop("out")
        library = _library(op.name, op.first, x) if out is None else None
        for name, kind in op.kinds.items():
            if kind.is_array and not (kind.optional and values[name] is None):
                values[name] = _view(op.name, name, values[name])
        function = host_function(op, plan, values[op.first])
        result = function(**values, out=_out_view(op.name, out))
        return _like(x, library, result) if out is None else out

    return call


def _taking_as_is(
    op: Op, plan: Plan, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Callable[..., Any] | None:
    """Return the function of the backend if it takes these host arrays as they are."""
    x: Any = args[0] if args else None
    if not hasattr(type(x), "__dlpack_c_exchange_api__") or not getattr(x, "is_cpu", True):
        return None
    if any(getattr(each, "requires_grad", False) for each in (*args, *kwargs.values())):
        return None
    functions, key = plan.functions.setdefault(op.name, {}), ("as is", x.dtype)
    try:
        return functions[key]  # type: ignore[no-any-return]
    except LookupError:
        pass
    dtype = _device_dtype(op.name, op.first, x)
    function = function_for(op, plan, dtype) if dtype in DTYPES else None
    taking = functions[key] = function if function and exchanges_arrays(function) else None
    return taking


def dtype_and_device(op: str, argument: str, value: Any) -> tuple[str, str]:
    """Return the names of an array's dtype and device: ``float32`` and ``cpu`` or ``cuda:0``."""
    device = _device(op, argument, value)
    if device == CPU:
        return dtype_name(op, argument, _view(op, argument, value)), device
    return _device_dtype(op, argument, value), device


def _device(op: str, argument: str, value: Any) -> str:
    try:
        kind, index = map(int, value.__dlpack_device__())
    except Exception as error:
        raise ValueError(f"{op}: {argument} is on no device of DLPack: {error}") from error
    if kind in _HOST:
        return CPU
    name = "cuda" if kind == _CUDA_MANAGED else _DEVICES.get(kind, f"dlpack{kind}")
    return f"{name}:{index}"


def _device_dtype(op: str, argument: str, value: Any) -> str:
    """Return the name of a dtype in any library: ``torch.float32`` is ``float32``."""
    if not hasattr(value, "dtype"):
        raise TypeError(f"{op}: {argument} has no dtype attribute, got {_type_name(value)}")
    return str(value.dtype).rpartition(".")[2]


def _view(op: str, argument: str, value: Any) -> np.ndarray[Any, Any]:
    """Return a NumPy array over the memory of `value`."""
    if isinstance(value, np.ndarray):
        return value
    if not is_foreign(value):
        raise TypeError(f"{op}: {argument} must be an array, got {_type_name(value)}")
    if getattr(value, "requires_grad", False):
        raise ValueError(
            f"{op}: {argument} requires grad, and tensor_ops computes no gradients; pass "
            f"{argument}.detach(), or call tensor_ops_torch.{op} (pip install 'tensor-ops[torch]')"
        )
    if hasattr(value, "is_neg") and value.is_neg():
        # PyTorch hands such a view out with the signs that are in memory.
        raise ValueError(
            f"{op}: {argument} is a view that negates lazily; pass {argument}.resolve_neg()"
        )
    device = _device(op, argument, value)
    if device != CPU:
        raise ValueError(f"{op}: {argument} is on {device}, expected every array on one device")
    try:
        if str(getattr(value, "dtype", None)).endswith("bfloat16"):
            # NumPy's DLPack has no bfloat16; the same bits travel as uint16.
            bits = value.view(_library(op, argument, value).uint16)
            return np.from_dlpack(bits).view(DTYPES["bfloat16"])
        return np.from_dlpack(value)
    except (AttributeError, BufferError, RuntimeError) as error:
        dtype = getattr(value, "dtype", "unknown")
        raise TypeError(
            f"{op}: {argument} with dtype {dtype} cannot be seen as a NumPy array: {error}"
        ) from error


def _out_view(op: str, out: Any) -> Any:
    if isinstance(out, tuple):
        return tuple(_view(op, f"out[{index}]", each) for index, each in enumerate(out))
    return None if out is None else _view(op, "out", out)


def _like(x: Any, library: Any, result: Any) -> Any:
    """Return NumPy results as the kind of array that x is, over the same memory."""
    if isinstance(result, tuple):
        return tuple(_like(x, library, each) for each in result)
    if result.dtype == DTYPES["bfloat16"]:
        return library.from_dlpack(result.view(np.uint16)).view(x.dtype)
    return library.from_dlpack(result)


def _library(op: str, argument: str, value: Any) -> Any:
    """Return the namespace that makes arrays like `value`: the array API's, or its package."""
    if hasattr(value, "__array_namespace__"):
        return value.__array_namespace__()
    # A user's subclass of an array type is from the user's package, which makes no arrays.
    for kind in type(value).__mro__:
        library = sys.modules.get(kind.__module__.partition(".")[0])
        if hasattr(library, "from_dlpack"):
            return library
    raise TypeError(
        f"{op}: {argument} is a {_type_name(value)}, whose package has no from_dlpack() to take "
        f"the result; pass out= or numpy.from_dlpack({argument})"
    )


def _type_name(value: Any) -> str:
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"
