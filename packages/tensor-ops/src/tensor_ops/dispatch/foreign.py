"""Arrays of other libraries, in and out through DLPack, without importing those libraries.

Host arrays of several libraries, NumPy among them, may be arguments of one call; the result is of
the kind of the first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tensor_ops.backends.names import CPU
from tensor_ops.dispatch.resolution import Route, function_for
from tensor_ops.op.arguments import DTYPES, dtype_name

if TYPE_CHECKING:
    from tensor_ops.config.state import DispatchTable
    from tensor_ops.op import Op

__all__ = [
    "caller",
    "facts",
    "has_foreign_beside_array",
    "is_foreign",
    "numpy_view",
    "function_of_exchange",
]

# DLDeviceType of dlpack.h to the names that a backend's supports() is asked about.
_DEVICES = {2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 14: "oneapi"}
_HOST = (1, 3, 11)  # plain, CUDA pinned, ROCm pinned
_CUDA_MANAGED = 13
# The part of PyTorch that has forward-mode derivatives, and keeps its level in `_current_level`.
_FORWARD_AD = "torch.autograd.forward_ad"


def is_foreign(value: Any) -> bool:
    """Return whether a value is an array of another library than NumPy that speaks DLPack."""
    return (
        not isinstance(value, np.ndarray)
        and hasattr(value, "__dlpack__")
        and hasattr(value, "__dlpack_device__")
    )


def has_foreign_beside_array(op: Op, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Return whether `x` is a NumPy array and another argument, or `out`, is a foreign one."""
    x = args[0] if args else kwargs.get(op.first)
    out = kwargs.get("out")
    outputs = out if isinstance(out, tuple) else ()
    others = (*args, *kwargs.values(), *outputs)
    return isinstance(x, np.ndarray) and any(map(is_foreign, others))


def caller(of_arrays: Route) -> Callable[..., Any]:
    """Return a function that runs an op, by a dispatch table, on arrays that may speak DLPack.

    Host arrays are seen as NumPy arrays over the same memory and the result comes back as the
    kind of `x`; device arrays go to a backend of that device as they are.
    """
    op = of_arrays.op
    exchanging = Route(op, exchanges_arrays=True)

    def call(table: DispatchTable, *args: Any, **kwargs: Any) -> Any:
        exchange = function_of_exchange(exchanging, table, args, kwargs)
        if exchange is not None:
            try:
                return exchange(*args, **kwargs)
            except (TypeError, ValueError):
                pass  # the checks below give the error that every backend gives
        values = op.bind(args, kwargs)
        out, x = values.pop("out"), values[op.first]
        device = _device(op.name, op.first, x)
        seen, library = _without_autograd, None
        if device == CPU:
            seen = numpy_view
            if out is None and not isinstance(x, np.ndarray):
                library = _library(op.name, op.first, x)
        for name, kind in op.kinds.items():
            if kind.is_array and not (kind.optional and values[name] is None):
                values[name] = seen(op.name, name, values[name])
        function: Any
        if device == CPU:
            view = values[op.first]
            name = dtype_name(op.name, op.first, view, is_view=view is not x)
            function = of_arrays.function(table, view.dtype, name)
        else:
            function = function_for(op, table, _device_dtype(op.name, op.first, x), device)
        result = function(**values, out=_outputs(op.name, out, seen))
        if out is not None:
            return out
        return result if library is None else _like(x, library, result)

    return call


def function_of_exchange(
    route: Route, table: DispatchTable, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Callable[..., Any] | None:
    """Return the function of the backend if it takes these host arrays as they are."""
    x: Any = args[0] if args else None
    if not hasattr(type(x), "__dlpack_c_exchange_api__") or not getattr(x, "is_cpu", True):
        return None
    if _tracks_tangents() or any(map(_is_recorded, (*args, *kwargs.values()))):
        return None
    try:
        return table.functions[route.key][x.dtype]
    except LookupError:
        name = _device_dtype(route.op.name, route.op.first, x)
        return route.function(table, x.dtype, name) if name in DTYPES else None


def facts(op: str, argument: str, value: Any) -> tuple[str, str, int | None]:
    """Return an array's dtype and device, and the number of elements if it is on the host.

    The names are as in ``float32`` and ``cpu`` or ``cuda:0``.
    """
    device = _device(op, argument, value)
    if device == CPU:
        view = numpy_view(op, argument, value)
        name = dtype_name(op, argument, view, is_view=view is not value)
        return name, device, view.size
    return _device_dtype(op, argument, value), device, None


def _device(op: str, argument: str, value: Any) -> str:
    if isinstance(value, np.ndarray):
        return CPU
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


def numpy_view(op: str, argument: str, value: Any) -> np.ndarray[Any, Any]:
    """Return a NumPy array over the memory of `value`.

    Raises
    ------
    TypeError, ValueError
        If there is none, naming the op and the argument.
    """
    if isinstance(value, np.ndarray):
        return value
    if not is_foreign(value):
        raise TypeError(f"{op}: {argument} must be an array, got {_type_name(value)}")
    value = _without_autograd(op, argument, value)
    if hasattr(value, "is_neg") and value.is_neg():
        # PyTorch exports such a view with the signs that are in memory. Resolving it makes a copy,
        # so that a result would not reach the owner of the view.
        remedy = (
            "give a tensor that is none"
            if argument.startswith("out")
            else f"pass {argument}.resolve_neg()"
        )
        raise ValueError(f"{op}: {argument} is a view that negates lazily; {remedy}")
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


def _without_autograd(op: str, argument: str, value: Any) -> Any:
    """Return a tensor of PyTorch without its gradient and tangent, if none of them gets lost.

    Anything else is returned as it is.
    """
    lost = ""
    if _is_recorded(value):
        lost = "requires grad, and tensor_ops computes no gradients"
    elif _tracks_tangents() and _has_tangent(value):
        lost = "has a tangent, and tensor_ops computes no derivatives"
    if lost:
        raise ValueError(
            f"{op}: {argument} {lost}; pass {argument}.detach(), or call tensor_ops_torch.{op} "
            "(from a clone: pip install ./packages/tensor-ops-devices ./packages/tensor-ops-torch)"
        )
    return value.detach() if getattr(value, "requires_grad", False) else value


def _is_recorded(value: Any) -> bool:
    """Return whether a tensor is part of a gradient that is being recorded."""
    if not getattr(value, "requires_grad", False):
        return False
    torch = sys.modules.get("torch")
    return torch is None or not isinstance(value, torch.Tensor) or torch.is_grad_enabled()


def _tracks_tangents() -> bool:
    forward_ad = sys.modules.get(_FORWARD_AD)
    return forward_ad is not None and forward_ad._current_level >= 0


def _has_tangent(value: Any) -> bool:
    is_tensor = isinstance(value, sys.modules["torch"].Tensor)
    return is_tensor and sys.modules[_FORWARD_AD].unpack_dual(value).tangent is not None


def _outputs(op: str, out: Any, seen: Callable[[str, str, Any], Any]) -> Any:
    """Return each array of `out` as `seen` by the backend."""
    if isinstance(out, tuple):
        return tuple(seen(op, f"out[{index}]", each) for index, each in enumerate(out))
    return None if out is None else seen(op, "out", out)


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
    # A subclass may be of a user's package, which makes no arrays: its bases are looked at too.
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
