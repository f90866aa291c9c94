"""An op for CPU tensors past PyTorch's dispatcher, which takes longer than a row of numbers.

Generation calls an op thousands of times per second on single rows. Where nothing listens to the
dispatcher, the backend's function is called at once; everywhere else the operator is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tensor_ops import state
from tensor_ops.ops import OPS
from tensor_ops.resolution import function_in_place
from tensor_ops_torch.ops import OPERATORS
from tensor_ops_torch.tensors import DTYPE_NAMES, as_numpy

__all__ = ["direct"]


def direct(name: str) -> Callable[..., Any]:
    """Return a function that computes what an operator does.

    Its arguments are those of the operator, by position. The tensors have been checked: plain
    ones of one supported dtype, on one device, of shapes that fit, the first contiguous.
    """
    op, operator = OPS[name], OPERATORS[name]

    def call(x: Tensor, *rest: Any) -> Any:
        if (
            torch.compiler.is_compiling()
            or torch.is_grad_enabled()
            or not x.is_cpu
            or type(x) is not Tensor
            or x.is_neg()
            # Modes such as those that count operations, torch.func, and the profiler.
            or torch._C._len_torch_dispatch_stack()
            or torch._C._are_functorch_transforms_active()
            or torch.autograd._profiler_enabled()
        ):
            return operator(x, *rest)
        function = function_in_place(op, state.current(), DTYPE_NAMES[x.dtype], "cpu")
        result = torch.empty_like(x, memory_format=torch.contiguous_format)
        arrays = [as_numpy(each) if isinstance(each, Tensor) else each for each in rest]
        function(as_numpy(x), *arrays, out=as_numpy(result))
        return result

    return call
