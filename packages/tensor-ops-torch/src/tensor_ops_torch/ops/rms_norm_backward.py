"""Gradients of root mean square layer normalization.

>>> import torch
>>> import tensor_ops_torch
>>> grad, x = torch.tensor([[1.0, 0.0]]), torch.tensor([[3.0, 4.0]])
>>> tensor_ops_torch.rms_norm_backward(grad, x, torch.ones(2))
(tensor([[ 0.1810, -0.1358]]), tensor([0.8485, 0.0000]))
"""

from torch import Tensor

from tensor_ops_torch.operators.norm_gradients import rms_of_gradient
from tensor_ops_torch.operators.rows import needed_like, rms_norm_gradients


def composed(grad: Tensor, x: Tensor, weight: Tensor, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    of_x, of_weight = rms_norm_gradients(grad, x, weight, eps, True, True)
    assert of_x is not None
    assert of_weight is not None
    return of_x.to(grad.dtype), of_weight


def gradients(
    of_x: Tensor,
    of_weight: Tensor,
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    eps: float,
    *,
    needs: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    found = rms_of_gradient(grad, x, weight, eps).gradients(of_x, of_weight)
    return needed_like(found, (grad, x, weight), needs)


def tangents(
    of_grad: Tensor | None,
    of_x: Tensor | None,
    of_weight: Tensor | None,
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    eps: float,
) -> tuple[Tensor, ...]:
    of_results = rms_of_gradient(grad, x, weight, eps).tangents(of_grad, of_x, of_weight)
    return of_results[:2]
