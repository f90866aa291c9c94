"""Gradients by the operators of derivatives, where a backend has them."""

from __future__ import annotations

import torch
from torch import Tensor

from tensor_ops import BackendError
from tensor_ops.extension import CPU, OPS, Route, function_of
from tensor_ops_torch.operators.tensors import device_route, dtype_name

__all__ = ["gradient_by_backend"]

_ON_CPU: dict[str, Route] = {}


def gradient_by_backend(name: str, grad: Tensor, x: Tensor, *scalars: str) -> Tensor | None:
    """Return what ``<op>_backward`` computes; None where the backend in force does not have it."""
    op = OPS[name]
    if x.is_cpu:
        route = _ON_CPU.setdefault(name, Route(op, CPU, in_place=True))
    else:
        route = device_route(op, x.device)
    try:
        function_of(route, x.dtype, dtype_name(name, op.first, x))
    except BackendError:
        return None
    found: Tensor = getattr(torch.ops.tensor_ops, name)(grad, x, *scalars)
    return found
