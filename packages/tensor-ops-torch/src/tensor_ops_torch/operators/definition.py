"""An op of tensor_ops as PyTorch operator: kernels, shapes, derivatives, vmap and autocast."""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from tensor_ops import BackendError, BackendFallbackWarning
from tensor_ops.extension import CPU, Op, Route, check_values, decision, function_of
from tensor_ops_torch.operators.rows import may_have_tangents
from tensor_ops_torch.operators.tensors import (
    EXCHANGES,
    HALF,
    device_route,
    dtype_name,
    taking_arrays,
)

__all__ = ["NAMESPACE", "define"]

NAMESPACE = "tensor_ops"
_AUTOCAST = ("cpu", "cuda", "xpu", "mps", "xla")
_SCALARS = {"real": "float", "choice": "str", "flag": "bool"}
_library = torch.library.Library(NAMESPACE, "DEF")
# Device types whose fall-back to PyTorch's own functions has been told.
_told: set[str] = set()


def define(op: Op, torch_side: ModuleType) -> torch._ops.OpOverload:
    """Define ``torch.ops.tensor_ops.<op>`` and return it.

    Parameters
    ----------
    op : tensor_ops.op.Op
    torch_side : module
        With `composed`, the op in PyTorch's functions, for devices that no backend has;
        `gradients`, from the gradients of the results, what was saved and the scalars to the
        gradients of the arrays; `tangents`, from the tangents of the arrays, None for an array
        that has none, what was saved and the scalars to the tangents of the results, in any dtype;
        and `saved`, from arrays and results to what both of them need, unless that is the arrays.
    """
    _library.define(f"{op.name}{_schema(op)}")
    qualified = f"{NAMESPACE}::{op.name}"
    operator = getattr(getattr(torch.ops, NAMESPACE), op.name).default
    composed = torch_side.composed
    _library.impl(op.name, _host_kernel(op), "CPU")
    _library.impl(op.name, _device_kernel(op, composed), "CompositeExplicitAutograd")
    torch.library.register_fake(qualified, _fake(op), lib=_library)
    function = _differentiable(op, operator, torch_side)
    _library.impl(op.name, _autograd_kernel(op, operator, function), "Autograd")
    torch.library.register_vmap(qualified, _vmap(op, operator), lib=_library)
    for device in _AUTOCAST:
        _library.impl(op.name, _autocast(op, operator, device), f"Autocast{device.upper()}")
    return operator


def _arrays(op: Op) -> list[str]:
    """Return the names of the arguments that are arrays: those that come first."""
    return [name for name, kind in op.kinds.items() if kind.is_array]


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
    count, first = len(_arrays(op)), op.first
    of_tensors = Route(op, CPU, in_place=True, exchanges_arrays=True)
    of_arrays = Route(op, CPU, in_place=True)

    def kernel(*args: Any, **scalars: Any) -> Any:
        dtype, name = args[0].dtype, dtype_name(op.name, first, args[0])
        function: Any = function_of(of_tensors, dtype, name) if EXCHANGES else None
        if function is None:
            _check(op, args)  # the backend would speak of NumPy arrays
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


def _device_kernel(op: Op, composed: Callable[..., Any]) -> Callable[..., Any]:
    count = len(_arrays(op))

    def kernel(*args: Any, **scalars: Any) -> Any:
        _check(op, args)
        function = _device_function(op, args[0])
        if function is None:
            _check_scalars(op, args, scalars)
            return composed(*args, **scalars)
        results = _new_results(op, args)
        arrays = [None if each is None else each.detach() for each in args[:count]]
        function(*arrays, *args[count:], **scalars, out=results)
        return results

    return kernel


def _device_function(op: Op, x: Tensor) -> Callable[..., Any] | None:
    """Return the function of a backend of the device, None where PyTorch's own functions run."""
    route = device_route(op, x.device)
    try:
        return function_of(route, x.dtype, dtype_name(op.name, op.first, x))
    except BackendError as error:
        if decision().strict:
            raise
        kind = route.device.partition(":")[0]
        if kind not in _told:
            warnings.warn(
                f"{error}. PyTorch's own functions run on {kind} instead",
                BackendFallbackWarning,
                stacklevel=2,
            )
            _told.add(kind)
        return None


def _fake(op: Op) -> Callable[..., Any]:
    def fake(*args: Any, **scalars: Any) -> Any:
        _check(op, args)
        return _new_results(op, args)

    return fake


def _new_results(op: Op, args: Sequence[Any]) -> Any:
    """Return contiguous tensors of x's shape, each in the dtype of the argument it is like."""
    x, arrays = args[0], _arrays(op)
    results = tuple(
        x.new_empty(x.shape, dtype=args[arrays.index(like)].dtype) for like in op.results_like
    )
    return results[0] if op.outputs == 1 else results


def _check(op: Op, args: Sequence[Any]) -> None:
    """Check shapes, dtypes and devices as the backends do, where none of them sees the tensors.

    Raises
    ------
    TypeError, ValueError
    """
    x, first = args[0], op.first
    given = {
        name: value for name, value in zip(_arrays(op), args, strict=False) if value is not None
    }
    dtype_name(op.name, first, x)
    rows = any(op.kinds[name].role != "elements" for name in _arrays(op))
    if rows and x.ndim == 0:
        raise ValueError(f"{op.name}: {first} has shape (), expected at least one axis")
    for name, value in given.items():
        if value.layout is not torch.strided:
            raise TypeError(
                f"{op.name}: {name} has layout {value.layout}, expected {torch.strided}; "
                f"convert it with {name}.to_dense()"
            )
        _check_dtype(op, name, given)
        if value.device != x.device:
            raise ValueError(
                f"{op.name}: {name} is on {value.device}, expected {x.device} like {first}"
            )
        expected = _expected_shape(op, name, x)
        fits = value.shape == expected
        if op.kinds[name].role == "half_rows":
            fits = _broadcasts(value.shape, expected)
        if not fits:
            raise ValueError(
                f"{op.name}: {name} has shape {tuple(value.shape)}, expected {tuple(expected)} "
                f"for {first} with shape {tuple(x.shape)}"
            )


def _check_scalars(op: Op, args: tuple[Any, ...], scalars: dict[str, Any]) -> None:
    """Check the scalars as the backends do, where none of them sees them.

    Raises
    ------
    TypeError, ValueError
    """
    kinds = {name: kind for name, kind in op.kinds.items() if not kind.is_array}
    if kinds:
        check_values(op.name, kinds, op.bind(args, scalars))


def _check_dtype(op: Op, name: str, given: Mapping[str, Tensor]) -> None:
    """Check the dtype of one tensor against x's, or against its partner's, as tensor_ops does."""
    x, value, kind = given[op.first], given[name], op.kinds[name]
    like, alternative = op.first, ""
    if kind.wide:
        # Wide arguments of one role, as a weight and its bias, share their dtype.
        same = ((each, op.kinds[each]) for each in given)
        leader = next(each for each, of in same if of.wide and of.role == kind.role)
        if leader != name:
            like = leader
        elif x.dtype in HALF:
            alternative = f", or {torch.float32}"
    expected = given[like].dtype
    if value.dtype == expected or (alternative and value.dtype is torch.float32):
        return
    raise TypeError(
        f"{op.name}: {name} has dtype {value.dtype}, expected {expected} like {like}{alternative}; "
        f"convert it with {name}.to({like}.dtype)"
    )


def _expected_shape(op: Op, name: str, x: Tensor) -> torch.Size:
    role = op.kinds[name].role
    if role == "row_vector":
        return x.shape[-1:]
    if role == "half_rows":
        if x.shape[-1] % 2:
            raise ValueError(
                f"{op.name}: {op.first} has shape {tuple(x.shape)}, expected a last axis of even "
                "length"
            )
        return torch.Size((*x.shape[:-1], x.shape[-1] // 2))
    return x.shape


def _broadcasts(shape: torch.Size, target: torch.Size) -> bool:
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(size in (1, other) for size, other in pairs)


def _autograd_kernel(
    op: Op, operator: Callable[..., Any], function: type[torch.autograd.Function]
) -> Callable[..., Any]:
    count = len(_arrays(op))

    def kernel(*args: Any, **scalars: Any) -> Any:
        has_tangents = _have_tangents(args[:count])
        if any(has_tangents) or (
            torch.is_grad_enabled()
            and any(each is not None and each.requires_grad for each in args[:count])
        ):
            return _apply(function, _Call(scalars, has_tangents), *args)
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*args, **scalars)

    return kernel


def _have_tangents(arrays: Sequence[Any]) -> tuple[bool, ...]:
    """Return whether each array has a tangent of forward-mode differentiation."""
    if not may_have_tangents():
        return ()
    return tuple(each is not None and _unpacked(each).tangent is not None for each in arrays)


class _Call:
    """What `torch.autograd.Function` does not handle of a call: scalars and the state around it."""

    __slots__ = ("_modes", "has_tangents", "scalars")

    def __init__(self, scalars: Mapping[str, Any], has_tangents: tuple[bool, ...]) -> None:
        self.scalars = scalars
        self.has_tangents = has_tangents
        self._modes = torch.is_grad_enabled(), torch._C._is_fwd_grad_enabled()

    @contextlib.contextmanager
    def modes(self) -> Iterator[None]:
        """Differentiate as around the call; `torch.autograd.Function` turns that off.

        For the transforms of torch.func around the one that has called the function.
        """
        if not torch._C._are_functorch_transforms_active():
            yield
            return
        grad, forward = self._modes
        with torch.set_grad_enabled(grad), forward_ad._set_fwd_grad_enabled(forward):
            yield


def _primals(arrays: Sequence[Tensor | None]) -> Iterator[Tensor | None]:
    """Yield arrays without the tangents of the transform that has called a function."""
    for each in arrays:
        yield each if each is None else _unpacked(each).primal


def _unpacked(tensor: Tensor) -> Any:
    # PyTorch has one level. The number that it would take by itself is not kept in graphs.
    return forward_ad.unpack_dual(tensor, level=0)


def _apply(function: type[torch.autograd.Function], *args: Any) -> Any:
    if not torch._C._are_functorch_transforms_active():
        return function.apply(*args)
    # The dispatcher has already chosen the transform of torch.func that these tensors belong to;
    # the usual way would look for it again.
    from torch._functorch.autograd_function import enable_single_level_autograd_function

    with enable_single_level_autograd_function():
        return super(torch.autograd.Function, function).apply(*args)


def _differentiable(
    op: Op, operator: Callable[..., Any], torch_side: ModuleType
) -> type[torch.autograd.Function]:
    """Return the operator as a function with gradients and tangents.

    `torch.library.register_autograd` would do, were it not for the transforms of torch.func.
    """
    count = len(_arrays(op))
    gradients, save = torch_side.gradients, getattr(torch_side, "saved", None)
    tangents = torch_side.tangents

    class Differentiable(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, call: _Call, *args: Any) -> Any:
            with call.modes(), torch._C._AutoDispatchBelowAutograd():
                output = operator(*args, **call.scalars)
            # The dispatcher leaves out arguments that equal their defaults.
            ctx.given = len(args)
            bound = op.bind(args, call.scalars)
            values = [bound[name] for name in op.kinds]
            arrays, ctx.scalars = values[:count], values[count:]
            outputs = output if isinstance(output, tuple) else (output,)
            kept = arrays if save is None else save(*arrays, *outputs)
            ctx.save_for_backward(*kept)
            if any(call.has_tangents):
                ctx.save_for_forward(*kept)
                ctx.call = call
                ctx.dtypes = [each.dtype for each in outputs]
            return output

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
            needs = (*ctx.needs_input_grad[1:], *(False,) * count)[:count]
            found = gradients(*grads, *ctx.saved_tensors, *ctx.scalars, needs=needs)
            return (None, *(*found, *(None for _ in ctx.scalars))[: ctx.given])

        @staticmethod
        def jvp(ctx: Any, *given: Tensor | None) -> Any:
            # PyTorch gives zeros for what has no tangent, and infinity times zero is NaN.
            has_tangents = (*ctx.call.has_tangents, *(False,) * count)[:count]
            directions = (
                each if has else None
                for each, has in zip((*given[1:], *(None,) * count), has_tangents, strict=False)
            )
            with ctx.call.modes():
                found = tangents(*directions, *_primals(ctx.saved_tensors), *ctx.scalars)
            results = found if isinstance(found, tuple) else (found,)
            cast = tuple(each.to(dtype) for each, dtype in zip(results, ctx.dtypes, strict=True))
            return cast if isinstance(found, tuple) else cast[0]

    return Differentiable


def _vmap(op: Op, operator: Callable[..., Any]) -> Callable[..., Any]:
    names = _arrays(op)

    def rule(info: Any, in_dims: tuple[int | None, ...], *args: Any, **scalars: Any) -> Any:
        """Make the mapped axis one more axis of rows, or go along it where a row vector has it."""
        size, tensors = info.batch_size, list(args[: len(names)])
        dims = list(in_dims[: len(names)])
        of_vectors = any(
            dim is not None and op.kinds[name].role == "row_vector"
            for name, dim in zip(names, dims, strict=False)
        )
        if of_vectors:
            parts = [
                operator(
                    *(
                        each if dim is None else each.select(dim, index)
                        for each, dim in zip(tensors, dims, strict=True)
                    ),
                    *args[len(tensors) :],
                    **scalars,
                )
                for index in range(size)
            ]
            if op.outputs == 1:
                return torch.stack(parts), 0
            return tuple(map(torch.stack, zip(*parts, strict=True))), (0,) * op.outputs
        rank = max(
            each.ndim - (dim is not None)
            for each, dim in zip(tensors, dims, strict=True)
            if each is not None
        )
        for index, (name, dim) in enumerate(zip(names, dims, strict=False)):
            tensor, role = tensors[index], op.kinds[name].role
            if dim is not None:
                moved = tensor.movedim(dim, 0)
                # An axis that broadcasts from the right must not meet the mapped one.
                ones = (1,) * (rank - moved.ndim + 1)
                tensors[index] = moved.reshape(size, *ones, *moved.shape[1:])
            elif tensor is not None and op.kinds[name].is_full:
                tensors[index] = tensor.expand(size, *tensor.shape)
            assert role != "row_vector" or dim is None
        result = operator(*tensors, *args[len(tensors) :], **scalars)
        return result, 0 if op.outputs == 1 else (0,) * op.outputs

    return rule


def _autocast(op: Op, operator: Callable[..., Any], device: str) -> Callable[..., Any]:
    count = len(_arrays(op))

    def kernel(*args: Any, **scalars: Any) -> Any:
        """Bring the arrays to the widest of their dtypes: PyTorch's policy "promote"."""
        tensors = [each for each in args[:count] if each is not None]
        widest = tensors[0].dtype
        for each in tensors[1:]:
            widest = torch.promote_types(widest, each.dtype)
        arrays = (None if each is None else each.to(widest) for each in args[:count])
        with torch.autocast(device, enabled=False):
            return operator(*arrays, *args[count:], **scalars)

    return kernel
