"""The operators of derivatives, where a backend has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tensor_ops import BackendError
from tensor_ops.extension import CPU, OPS, Route, function_of
from tensor_ops_torch.operators.tensors import device_route, dtype_name

__all__ = ["backward_operator"]

_ON_CPU: dict[str, Route] = {}


def backward_operator(name: str, x: Tensor) -> Callable[..., Any] | None:
    """Return the operator ``<op>_backward``, None where the backend in force does not have it."""
    op = OPS[name]
    if x.is_cpu:
        route = _ON_CPU.setdefault(name, Route(op, CPU, in_place=True))
    else:
        route = device_route(op, x.device)
    try:
        function_of(route, x.dtype, dtype_name(name, op.first, x))
    except BackendError:
        return None
    operator: Callable[..., Any] = getattr(torch.ops.tensor_ops, name)
    return operator
