"""Gradient of SiLU.

>>> import torch
>>> import tensor_ops_torch
>>> tensor_ops_torch.silu_backward(torch.ones(3), torch.tensor([-1.0, 0.0, 1.0]))
tensor([0.0723, 0.5000, 0.9277])
"""

import math

import torch
from torch import Tensor

from tensor_ops_torch.operators.rows import sum_of, wide_dtype
from tensor_ops_torch.ops import silu


def composed(grad: Tensor, x: Tensor) -> Tensor:
    wide = wide_dtype(x)
    return precise(grad.to(wide), x.to(wide)).to(grad.dtype)


def precise(grad: Tensor, x: Tensor) -> Tensor:
    """Return the gradient in the dtype of the tensors; both factors keep their digits."""
    near = silu.saturated(x)
    # exp(x) loses digits before the result does.
    tail = torch.exp(near + 32) * math.exp(-16)
    is_deep = near < -700
    part = torch.where(is_deep, tail, torch.sigmoid(near))
    slope = 1 + near * torch.sigmoid(-near)
    return product(grad * part, torch.where(is_deep, slope * math.exp(-16), slope), grad, x)


def product(part: Tensor, slope: Tensor, grad: Tensor, x: Tensor) -> Tensor:
    """Return part of a gradient times the rest of the derivative.

    However small, a derivative that is not zero keeps an infinity infinite.
    """
    found = part * slope
    return torch.where(grad.isinf() & x.isfinite() & found.isnan(), -grad, found)


def gradients(
    direction: Tensor, grad: Tensor, x: Tensor, *, needs: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    of_grad = silu.along(direction, x).to(grad.dtype) if needs[0] else None
    of_x = (direction * grad * _second(x)).to(x.dtype) if needs[1] else None
    return of_grad, of_x


def tangents(of_grad: Tensor | None, of_x: Tensor | None, grad: Tensor, x: Tensor) -> Tensor:
    parts = []
    if of_grad is not None:
        parts += [silu.along(of_grad, x)]
    if of_x is not None:
        parts += [of_x * grad * _second(x)]
    return sum_of(parts)


def _second(x: Tensor) -> Tensor:
    """Return the second derivative of SiLU at `x`, in the wide dtype."""
    x = silu.saturated(x.to(wide_dtype(x)))
    sigmoid, rest = torch.sigmoid(x), torch.sigmoid(-x)
    return sigmoid * rest * (2 + x * (rest - sigmoid))
