"""Calling an op on CPU tensors without PyTorch's dispatcher.

Generating text calls ops thousands of times per second on single rows, and the dispatcher takes
longer than computing a row. Where skipping it is unobservable, the backend's function is called
directly, within a `torch.autograd.Function` if gradients are recorded; everywhere else the operator
is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch._C import (
    _is_any_autocast_enabled,
    _is_tracing,
    _len_torch_dispatch_stack,
    _len_torch_function_stack,
)
from torch.autograd import forward_ad, profiler
from torch.compiler import is_dynamo_compiling

from tensor_ops.extension import Op, exchanging_finder, exchanging_function
from tensor_ops_torch.operators.tensors import EXCHANGES, dtype_name

__all__ = [
    "PLAIN",
    "REFUSED",
    "are_as_is",
    "bypassing",
    "can_bypass_dispatcher",
    "direct",
    "finder",
]

# A direct call raises these before it computes anything, so that the caller may call the operator:
# for tensors of other kinds, for those of torch.func, which have no memory, and where a backend
# does not take tensors.
REFUSED = (TypeError, ValueError, LookupError)
# A subclass of Tensor may mean something else by its memory.
PLAIN = frozenset({Tensor, nn.Parameter})
_is_as_is = (PLAIN | {type(None), float, int, str, bool}).__contains__


def are_as_is(arguments: tuple[Any, ...]) -> bool:
    """Return whether all arguments after the first are what they seem to be."""
    return all(map(_is_as_is, map(type, arguments)))


def can_bypass_dispatcher(x: Any) -> bool:
    """Return whether skipping the dispatcher is unobservable for a tensor, gradients aside.

    Keep this short: within a model each of these questions costs a few cache lines.
    """
    return (
        type(x) is Tensor
        # Every other way of tracing has tensors of its own kind, or modes.
        and not is_dynamo_compiling()
        and x.is_cpu
        and not x.is_nested
        and forward_ad._current_level < 0
        and not _is_any_autocast_enabled()
        and not _is_tracing()
        # Modes such as those that count operations.
        and not _len_torch_dispatch_stack()
        and not _len_torch_function_stack()
        and not profiler._is_profiler_enabled
    )


def direct(op: Op) -> Callable[..., Any]:
    """Return a function that computes what an operator does, or raises one of `REFUSED`.

    The caller has asked `can_bypass_dispatcher` for the first tensor; the types of the others are
    among `PLAIN`.
    """
    return exchanging_function(op, dtype_name) if EXCHANGES else _refuse


def finder(op: Op) -> Callable[[Any, Any], Callable[..., Any]]:
    """Return what finds the function that `direct` calls, of the dtype of a tensor and of that.

    Like that function it raises one of `REFUSED`.
    """
    return exchanging_finder(op, dtype_name) if EXCHANGES else _refuse


def bypassing(operator: Callable[..., Any], run_directly: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operator that bypasses the dispatcher where it can."""

    def compute(x: Any, *rest: Any) -> Any:
        if can_bypass_dispatcher(x) and are_as_is(rest):
            try:
                return run_directly(x, *rest)
            except REFUSED:
                pass  # the operator computes it, or raises an error that says what is wrong
        return operator(x, *rest)

    return compute


def _refuse(*_: Any) -> Any:
    raise TypeError
