"""Gradients by the operators of derivatives, where a backend has them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from tensor_ops import BackendError
from tensor_ops.extension import OPS, Op, function_of
from tensor_ops_torch.operators.direct import REFUSED, are_as_is, can_bypass_dispatcher, direct
from tensor_ops_torch.operators.tensors import device_route, dtype_name

__all__ = ["gradient_by_backend"]


def gradient_by_backend(name: str, grad: Tensor, *others: Any) -> Any:
    """Return what ``<op>_backward`` computes; None where the backend in force does not have it.

    Nothing that is computed here may be differentiated.
    """
    op = OPS[name]
    try:
        if can_bypass_dispatcher(grad) and are_as_is(others):  # gradients are not recorded here
            try:
                return _run_directly(op)(grad, *others)
            except REFUSED:
                pass
        function_of(device_route(op, grad.device), grad.dtype, dtype_name(name, op.first, grad))
    except BackendError:
        return None
    operator = getattr(torch.ops.tensor_ops, name).default
    with torch._C._AutoDispatchBelowAutograd():
        return operator(grad, *others)


@cache
def _run_directly(op: Op) -> Callable[..., Any]:
    return direct(op)
