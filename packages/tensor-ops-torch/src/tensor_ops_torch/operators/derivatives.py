"""Gradients and tangents of the operators."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from tensor_ops.extension import Op
from tensor_ops_torch.operators.direct import bypassing, direct, finder
from tensor_ops_torch.operators.rows import may_have_tangents
from tensor_ops_torch.operators.tensors import array_names

__all__ = ["autograd_kernel", "differentiable", "recording"]


def autograd_kernel(
    op: Op, operator: Callable[..., Any], function: type[torch.autograd.Function]
) -> Callable[..., Any]:
    """Return the kernel of an operator that keeps what its derivatives need."""
    count = len(array_names(op))

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


def recording(op: Op, function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """Return a function that computes what an operator does, and records gradients.

    It is for calls that can bypass the dispatcher, of positional arguments alone. Like the function
    of `direct` it raises one of `REFUSED` where only the operator knows what to do, or to say.
    """
    count = len(array_names(op))
    find = finder(op)
    apply = super(torch.autograd.Function, function).apply

    def record(x: Any, *rest: Any) -> Any:
        if not torch.is_grad_enabled():
            return find(x.dtype, x)(x, *rest)
        if torch._C._are_functorch_transforms_active():
            raise TypeError
        args = (x, *rest)
        for each in args[:count]:
            if each is not None and each.requires_grad:
                try:
                    return apply(None, *args)
                except RuntimeError as error:
                    raise TypeError from error
        return find(x.dtype, x)(*args)

    return record


def _have_tangents(arrays: Sequence[Any]) -> tuple[bool, ...]:
    """Return whether each array has a tangent of forward-mode differentiation."""
    if not may_have_tangents():
        return ()
    return tuple(each is not None and _unpacked(each).tangent is not None for each in arrays)


class _Call:
    """The part of a call that `torch.autograd.Function` does not handle: scalars and modes."""

    __slots__ = ("_modes", "has_tangents", "scalars")

    def __init__(self, scalars: Mapping[str, Any], has_tangents: tuple[bool, ...]) -> None:
        self.scalars = scalars
        self.has_tangents = has_tangents
        self._modes = torch.is_grad_enabled(), torch._C._is_fwd_grad_enabled()

    def modes(self) -> contextlib.AbstractContextManager[None]:
        """Differentiate as around the call; `torch.autograd.Function` turns that off.

        For the transforms of torch.func around the one that has called the function.
        """
        return self._set_modes() if torch._C._are_functorch_transforms_active() else _NOTHING

    @contextlib.contextmanager
    def _set_modes(self) -> Iterator[None]:
        grad, forward = self._modes
        with torch.set_grad_enabled(grad), forward_ad._set_fwd_grad_enabled(forward):
            yield


_NOTHING = contextlib.nullcontext()


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


def _missing(op: Op, name: str) -> Callable[..., Any]:
    """Return what stands for a derivative that nobody has written."""

    def derivative(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"{op.name} has no derivative in PyTorch: there is no function `{name}` in "
            f"tensor_ops_torch/ops/{op.name}.py. Write one as the files beside it do, or call "
            f"{op.name} on x.detach(), or under torch.no_grad()"
        )

    return derivative


def _symmetric(along: Callable[..., Tensor]) -> Callable[..., Any]:
    """Return the gradients of an op of one array whose derivative is the same either way."""

    def gradients(grad: Tensor, saved: Tensor, *scalars: Any, needs: Any) -> tuple[Tensor]:
        found = along(grad, saved, *scalars)
        return (found if found.dtype is saved.dtype else found.to(saved.dtype),)

    return gradients


def differentiable(
    op: Op, operator: Callable[..., Any], formulas: ModuleType | None
) -> type[torch.autograd.Function]:
    """Return an operator as a function with gradients and tangents.

    `torch.library.register_autograd` would do, were it not for the transforms of torch.func.
    """
    count = len(array_names(op))
    run_directly = direct(op)
    compute = bypassing(operator, run_directly)
    save = getattr(formulas, "saved", None)
    along = getattr(formulas, "along", None)
    symmetric = None if along is None else _symmetric(along)
    gradients = getattr(formulas, "gradients", symmetric) or _missing(op, "gradients")
    tangents = getattr(formulas, "tangents", along) or _missing(op, "tangents")

    parameters = [op.signature.parameters[name] for name in op.kinds]
    defaults = tuple(each.default for each in parameters)
    not_given, of_scalars = (False,) * count, (None,) * (len(parameters) - count)

    def all_arguments(args: tuple[Any, ...], scalars: Mapping[str, Any]) -> tuple[Any, ...]:
        # The dispatcher leaves out arguments that equal their defaults.
        if not scalars:
            return args + defaults[len(args) :]
        bound = op.bind(args, scalars)
        return tuple(bound[name] for name in op.kinds)

    class Differentiable(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, call: _Call | None, *args: Any) -> Any:
            if call is None:  # as `recording` calls it
                output, values = run_directly(*args), args + defaults[len(args) :]
            else:
                with call.modes(), torch._C._AutoDispatchBelowAutograd():
                    output = operator(*args, **call.scalars) if call.scalars else compute(*args)
                values = all_arguments(args, call.scalars)
            ctx.given = len(args)
            arrays, ctx.scalars = values[:count], values[count:]
            outputs = output if isinstance(output, tuple) else (output,)
            kept = arrays if save is None else save(*arrays, *outputs)
            ctx.save_for_backward(*kept)
            if call is not None and any(call.has_tangents):
                ctx.save_for_forward(*kept)
                ctx.call = call
                ctx.dtypes = [each.dtype for each in outputs]
            return output

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
            needs = (*ctx.needs_input_grad[1:], *not_given)[:count]
            found = gradients(*grads, *ctx.saved_tensors, *ctx.scalars, needs=needs)
            return (None, *found, *of_scalars)[: 1 + ctx.given]

        @staticmethod
        def jvp(ctx: Any, *given: Tensor | None) -> Any:
            # PyTorch gives zeros for what has no tangent, and infinity times zero is NaN.
            has_tangents = (*ctx.call.has_tangents, *not_given)[:count]
            directions = (
                each if has else None
                for each, has in zip((*given[1:], *(None,) * count), has_tangents, strict=False)
            )
            # Without the tangents of the transform that has called this function.
            saved = (each if each is None else _unpacked(each).primal for each in ctx.saved_tensors)
            with ctx.call.modes():
                found = tangents(*directions, *saved, *ctx.scalars)
            results = found if isinstance(found, tuple) else (found,)
            cast = tuple(each.to(dtype) for each, dtype in zip(results, ctx.dtypes, strict=True))
            return cast if isinstance(found, tuple) else cast[0]

    return Differentiable
