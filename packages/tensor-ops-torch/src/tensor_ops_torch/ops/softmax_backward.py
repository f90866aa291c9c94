"""Gradient of the softmax.

>>> import torch
>>> import tensor_ops_torch
>>> y = torch.tensor([[0.25, 0.25, 0.5]])
>>> tensor_ops_torch.softmax_backward(torch.tensor([[1.0, 0.0, 0.0]]), y)
tensor([[ 0.1875, -0.0625, -0.1250]])
"""

import torch
from torch import Tensor

from tensor_ops_torch.operators.rows import sum_of, wide_dtype


def composed(grad: Tensor, y: Tensor, scale: float = 1.0) -> Tensor:
    wide = wide_dtype(y)
    return precise(grad.to(wide), y.to(wide), scale).to(grad.dtype)


def precise(grad: Tensor, y: Tensor, scale: float = 1.0) -> Tensor:
    """Return the gradient in the dtype of the tensors; a sum of large gradients stays finite."""
    part = torch.where(grad.detach().abs().amax(-1, keepdim=True) > _LARGE, _PART, 1.0)
    near = grad * part.to(grad.dtype)
    return (near - _sum(near * y)) * y * scale / part.to(grad.dtype)


# Larger gradients are divided, so that a sum of the largest numbers stays finite.
_LARGE, _PART = 2.0**100, 2.0**-100


def _sum(rows: Tensor) -> Tensor:
    return rows.sum(-1, keepdim=True)


def gradients(
    direction: Tensor, grad: Tensor, y: Tensor, scale: float, *, needs: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    wide = wide_dtype(y)
    u, g, p = direction.to(wide), grad.to(wide), y.to(wide)
    of_grad = ((u - _sum(u * p)) * p * scale).to(grad.dtype) if needs[0] else None
    of_y = None
    if needs[1]:
        of_y = ((u * g - u * _sum(g * p) - g * _sum(u * p)) * scale).to(y.dtype)
    return of_grad, of_y


def tangents(
    of_grad: Tensor | None, of_y: Tensor | None, grad: Tensor, y: Tensor, scale: float
) -> Tensor:
    wide, parts = wide_dtype(y), []
    g, p = grad.to(wide), y.to(wide)
    if of_grad is not None:
        u = of_grad.to(wide)
        parts += [p * (u - _sum(u * p))]
    if of_y is not None:
        v = of_y.to(wide)
        parts += [v * (g - _sum(g * p)) - p * _sum(g * v)]
    return sum_of(parts) * scale
