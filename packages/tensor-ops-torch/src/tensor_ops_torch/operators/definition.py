"""An op of tensor_ops as PyTorch operator: its schema, its kernels and what PyTorch asks of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from tensor_ops import BackendError, BackendFallbackWarning
from tensor_ops.extension import CPU, Op, Route, check_values, decision, function_of, warn_caller
from tensor_ops_torch.operators.checks import check_tensors
from tensor_ops_torch.operators.derivatives import autograd_kernel, differentiable, recording
from tensor_ops_torch.operators.rows import may_have_tangents
from tensor_ops_torch.operators.tensors import (
    EXCHANGES,
    array_names,
    device_route,
    dtype_name,
    taking_arrays,
)
from tensor_ops_torch.operators.transforms import autocast_kernel, vmap_rule

__all__ = ["NAMESPACE", "define"]

NAMESPACE = "tensor_ops"
_AUTOCAST = ("cpu", "cuda", "xpu", "mps", "xla")
_SCALARS = {"real": "float", "choice": "str", "flag": "bool"}
_library = torch.library.Library(NAMESPACE, "DEF")
# The device types for which a warning has said that PyTorch's own functions run instead.
warned_of: set[str] = set()


def define(op: Op, formulas: ModuleType | None) -> tuple[torch._ops.OpOverload, Callable[..., Any]]:
    """Define ``torch.ops.tensor_ops.<op>``; return it, and what computes it directly.

    The second, of `recording`, is for calls that can bypass the dispatcher.

    `formulas` is the file of the op in `tensor_ops_torch.ops`. It has functions:

    - `composed` computes the op by PyTorch's functions, on devices that no backend has.
    - `gradients` takes the gradients of the results, what was saved and the scalars, and returns
      the gradients of the arrays.
    - `tangents` takes the tangents of the arrays, None for an array that has none, what was saved
      and the scalars, and returns the tangents of the results, in any dtype.
    - `along` takes the place of both for an op of one array whose derivative is symmetric: it takes
      a direction, what was saved and the scalars.
    - `saved` takes arrays and results, and returns what the derivatives need of them. Without it,
      that is the arrays.

    An op without a file runs wherever a backend does; to differentiate it is an error.
    """
    _library.define(f"{op.name}{_schema(op)}")
    qualified = f"{NAMESPACE}::{op.name}"
    operator = getattr(getattr(torch.ops, NAMESPACE), op.name).default
    composed = None if formulas is None else formulas.composed
    _library.impl(op.name, _host_kernel(op), "CPU")
    _library.impl(op.name, device_kernel(op, composed), "CompositeExplicitAutograd")
    torch.library.register_fake(qualified, _fake(op), lib=_library)
    function = differentiable(op, operator, formulas)
    _library.impl(op.name, autograd_kernel(op, operator, function), "Autograd")
    torch.library.register_vmap(qualified, vmap_rule(op, operator), lib=_library)
    for device in _AUTOCAST:
        _library.impl(op.name, autocast_kernel(op, operator, device), f"Autocast{device.upper()}")
    return operator, recording(op, function)


def _schema(op: Op) -> str:
    words = []
    for name, parameter in op.signature.parameters.items():
        if name not in op.kinds:
            continue
        kind = op.kinds[name]
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        type_name = "Tensor" if kind.is_array else _SCALARS[kind.role]
        word = f"{type_name}{'?' if kind.optional else ''} {name}"
        if parameter.default is not inspect.Parameter.empty:
            default = parameter.default
            word += f'="{default}"' if isinstance(default, str) else f"={default}"
        words.append(word)
    results = "Tensor" if op.outputs == 1 else f"({', '.join(['Tensor'] * op.outputs)})"
    return f"({', '.join(words)}) -> {results}"


def _host_kernel(op: Op) -> Callable[..., Any]:
    count, first = len(array_names(op)), op.first
    of_tensors = Route(op, CPU, in_place=True, exchanges_arrays=True)
    of_arrays = Route(op, CPU, in_place=True)

    def kernel(*args: Any, **scalars: Any) -> Any:
        dtype, name = args[0].dtype, dtype_name(op.name, first, args[0])
        function: Any = function_of(of_tensors, dtype, name) if EXCHANGES else None
        if function is None:
            check_tensors(op, args)  # the errors of the backend would speak of NumPy arrays
        # A backend that takes tensors asks them for tangents, which they cannot tell from here.
        if function is None or may_have_tangents():
            function = taking_arrays(op, function_of(of_arrays, dtype, name))
        arrays = [
            each.detach() if each is not None and each.requires_grad else each
            for each in args[:count]
        ]
        # Memory of PyTorch's own, which can be resized and shared.
        out = _new_results(op, args)
        function(*arrays, *args[count:], **scalars, out=out)
        return out

    return kernel


def device_kernel(op: Op, composed: Callable[..., Any] | None) -> Callable[..., Any]:
    count = len(array_names(op))

    def kernel(*args: Any, **scalars: Any) -> Any:
        check_tensors(op, args)
        function = device_function(op, args[0], composed is not None)
        if function is None:
            assert composed is not None
            _check_scalars(op, args, scalars)
            return composed(*args, **scalars)
        results = _new_results(op, args)
        arrays = [None if each is None else each.detach() for each in args[:count]]
        function(*arrays, *args[count:], **scalars, out=results)
        return results

    return kernel


def device_function(op: Op, x: Tensor, has_formula: bool) -> Callable[..., Any] | None:
    """Return the function of a backend of the device, None where PyTorch's own functions run.

    Raises BackendError if no backend runs the op there, and one was asked for or PyTorch's
    functions cannot.
    """
    route = device_route(op, x.device)
    try:
        return function_of(route, x.dtype, dtype_name(op.name, op.first, x))
    except BackendError as error:
        if not has_formula:
            error.add_note(
                f"tensor_ops_torch has no formula of {op.name} in PyTorch's own functions, which "
                "would run instead: move the tensors to the CPU"
            )
        if decision().strict or not has_formula:
            raise
        kind = route.device.partition(":")[0]
        if kind not in warned_of:
            warn_caller(
                f"{error}. PyTorch's own functions run on {kind} instead",
                BackendFallbackWarning,
            )
            warned_of.add(kind)
        return None


def _fake(op: Op) -> Callable[..., Any]:
    def fake(*args: Any, **scalars: Any) -> Any:
        check_tensors(op, args)
        return _new_results(op, args)

    return fake


def _new_results(op: Op, args: Sequence[Any]) -> Any:
    """Return contiguous tensors, each of the shape and dtype of the argument it is like."""
    arrays = array_names(op)
    likes = (args[arrays.index(like)] for like in op.results_like)
    results = tuple(torch.empty_like(each, memory_format=torch.contiguous_format) for each in likes)
    return results[0] if op.outputs == 1 else results


def _check_scalars(op: Op, args: tuple[Any, ...], scalars: dict[str, Any]) -> None:
    """Check the scalars as the backends do, where none of them sees them."""
    kinds = {name: kind for name, kind in op.kinds.items() if not kind.is_array}
    if kinds:
        check_values(op.name, kinds, op.bind(args, scalars))
