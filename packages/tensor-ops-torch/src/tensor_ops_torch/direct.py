"""An op for CPU tensors past PyTorch's dispatcher, which takes longer than a row of numbers.

Generation calls an op thousands of times per second on single rows. Where nothing listens to the
dispatcher, the backend's function is called at once; everywhere else the operator is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from tensor_ops import state
from tensor_ops.op import Op
from tensor_ops.resolution import function_in_place
from tensor_ops_torch.tensors import dtype_name, taking_tensors

__all__ = ["direct", "is_bare", "is_plain"]

_PLAIN = (Tensor, nn.Parameter, type(None))


def is_bare(x: Any) -> bool:
    """Return whether a backend's function may run on a tensor without anybody missing it."""
    return (
        not torch.compiler.is_compiling()
        and type(x) is Tensor
        and x.is_cpu
        and x.layout is torch.strided
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
        # Modes such as those that count operations, torch.func, and the profiler.
        and not torch._C._len_torch_dispatch_stack()
        and not torch._C._len_torch_function_stack()
        and not torch._C._are_functorch_transforms_active()
        and not torch.autograd._profiler_enabled()
        and forward_ad._current_level < 0
        and torch._C._get_tracing_state() is None
        and not x.is_neg()
        and not x.is_nested
    )


def direct(op: Op) -> Callable[..., Any]:
    """Return a function that computes what an operator does, for a first tensor that is bare.

    The other tensors are plain ones; what does not fit is an error of the backend's.
    """
    name, first = op.name, op.first

    def call(x: Tensor, *rest: Any, **scalars: Any) -> Any:
        plan = state.current()
        try:
            function = plan.functions[name][x.dtype]
        except LookupError:
            found = function_in_place(op, plan, dtype_name(name, first, x), "cpu")
            function = plan.functions[name][x.dtype] = taking_tensors(op, found)
        return function(x, *rest, **scalars)

    return call


def is_plain(argument: Any) -> bool:
    """Return whether an argument beside a bare tensor is no subclass of Tensor."""
    return type(argument) in _PLAIN
