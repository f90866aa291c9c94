"""Gradient of GELU.

>>> import torch
>>> import tensor_ops_torch
>>> tensor_ops_torch.gelu_backward(torch.ones(3), torch.tensor([-1.0, 0.0, 1.0]), "none")
tensor([-0.0833,  0.5000,  1.0833])
"""

import math

import torch
from torch import Tensor

from tensor_ops_torch.operators.rows import sum_of, wide_dtype
from tensor_ops_torch.ops import gelu, silu, silu_backward

# The sigmoid's argument in the form with tanh is c1 x + c3 x^3.
C1 = math.sqrt(8 / math.pi)
C3 = 0.044715 * C1


def composed(grad: Tensor, x: Tensor, approximate: str = "tanh") -> Tensor:
    wide = wide_dtype(x)
    return precise(grad.to(wide), x.to(wide), approximate).to(grad.dtype)


def precise(grad: Tensor, x: Tensor, approximate: str = "tanh") -> Tensor:
    """Return the gradient in the dtype of the tensors; all factors keep their digits."""
    near = silu.saturated(x)
    if approximate == "none":
        slope = torch.erfc(near * -math.sqrt(0.5)) / 2 + near * _density(near)
        return silu_backward.product(grad, slope, grad, x)
    w = near * (C1 + C3 * near * near)
    slope = 1 + near * (C1 + 3 * C3 * near * near) * torch.sigmoid(-w)
    return silu_backward.product(grad * torch.sigmoid(w), slope, grad, x)


def gradients(
    direction: Tensor, grad: Tensor, x: Tensor, approximate: str, *, needs: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    of_grad = gelu.along(direction, x, approximate).to(grad.dtype) if needs[0] else None
    of_x = (direction * grad * _second(x, approximate)).to(x.dtype) if needs[1] else None
    return of_grad, of_x


def tangents(
    of_grad: Tensor | None, of_x: Tensor | None, grad: Tensor, x: Tensor, approximate: str
) -> Tensor:
    parts = []
    if of_grad is not None:
        parts += [gelu.along(of_grad, x, approximate)]
    if of_x is not None:
        parts += [of_x * grad * _second(x, approximate)]
    return sum_of(parts)


def _second(x: Tensor, approximate: str) -> Tensor:
    """Return the second derivative of GELU at `x`, in the wide dtype."""
    x = silu.saturated(x.to(wide_dtype(x)))
    if approximate == "none":
        return (2 - x * x) * _density(x)
    w, rise, bend = x * (C1 + C3 * x * x), C1 + 3 * C3 * x * x, 6 * C3 * x
    sigmoid, rest = torch.sigmoid(w), torch.sigmoid(-w)
    return sigmoid * rest * (2 * rise + x * (bend + rise * rise * (rest - sigmoid)))


def _density(x: Tensor) -> Tensor:
    return torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
