"""Gradients by the operators of derivatives, where a backend has them, and their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tensor_ops import BackendError
from tensor_ops.extension import CPU, OPS, Route, function_of
from tensor_ops_torch.operators.tensors import device_route, dtype_name

__all__ = ["gradient_by_backend", "gradients_of", "tangents_of"]

_ON_CPU: dict[str, Route] = {}


def gradient_by_backend(name: str, grad: Tensor, *others: Any) -> Any:
    """Return what ``<op>_backward`` computes; None where the backend in force does not have it."""
    op = OPS[name]
    if grad.is_cpu:
        route = _ON_CPU.setdefault(name, Route(op, CPU, in_place=True))
    else:
        route = device_route(op, grad.device)
    try:
        function_of(route, grad.dtype, dtype_name(name, op.first, grad))
    except BackendError:
        return None
    return getattr(torch.ops.tensor_ops, name)(grad, *others)


def gradients_of(
    composed: Callable[..., tuple[Tensor, ...]],
    directions: Sequence[Tensor],
    arrays: Sequence[Tensor],
    scalars: Sequence[Any],
    needs: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """Return the gradients of a formula of PyTorch's functions with respect to the arrays."""
    _, gradients = torch.func.vjp(lambda *given: composed(*given, *scalars), *arrays)
    found = gradients(tuple(directions))
    return tuple(each if needed else None for each, needed in zip(found, needs, strict=True))


def tangents_of(
    composed: Callable[..., tuple[Tensor, ...]],
    directions: Sequence[Tensor | None],
    arrays: Sequence[Tensor],
    scalars: Sequence[Any],
) -> tuple[Tensor, ...]:
    """Return the tangents of the results of such a formula from those of the arrays."""
    moved = [index for index, each in enumerate(directions) if each is not None]

    def function(*given: Tensor) -> tuple[Tensor, ...]:
        values = list(arrays)
        for index, each in zip(moved, given, strict=True):
            values[index] = each
        return composed(*values, *scalars)

    primals = tuple(arrays[index] for index in moved)
    _, tangents = torch.func.jvp(
        function, primals, tuple(each for each in directions if each is not None)
    )
    found: tuple[Tensor, ...] = tangents
    return found
