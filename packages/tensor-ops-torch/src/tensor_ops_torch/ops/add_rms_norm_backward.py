"""Gradients of residual addition and root mean square layer normalization.

>>> import torch
>>> import tensor_ops_torch
>>> grad, grad_h = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5, 0.5]])
>>> tensor_ops_torch.add_rms_norm_backward(grad, grad_h, torch.tensor([[3.0, 4.0]]), torch.ones(2))
(tensor([[0.6810, 0.3642]]), tensor([0.8485, 0.0000]))
"""

from torch import Tensor

from tensor_ops_torch.operators.norm_gradients import rms_of_gradient
from tensor_ops_torch.operators.rows import needed_like, rms_norm_gradients


def composed(
    grad: Tensor, grad_h: Tensor, h: Tensor, weight: Tensor, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    of_rows, of_weight = rms_norm_gradients(grad, h, weight, eps, True, True)
    assert of_rows is not None
    assert of_weight is not None
    return (of_rows + grad_h).to(h.dtype), of_weight


def gradients(
    of_sum: Tensor,
    of_weight: Tensor,
    grad: Tensor,
    grad_h: Tensor,
    h: Tensor,
    weight: Tensor,
    eps: float,
    *,
    needs: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    of_grad, of_h, of_scale = rms_of_gradient(grad, h, weight, eps).gradients(of_sum, of_weight)
    found = (of_grad, of_sum, of_h, of_scale)
    return needed_like(found, (grad, grad_h, h, weight), needs)


def tangents(
    of_grad: Tensor | None,
    of_grad_h: Tensor | None,
    of_h: Tensor | None,
    of_weight: Tensor | None,
    grad: Tensor,
    grad_h: Tensor,
    h: Tensor,
    weight: Tensor,
    eps: float,
) -> tuple[Tensor, ...]:
    of_sum, of_scale, _ = rms_of_gradient(grad, h, weight, eps).tangents(of_grad, of_h, of_weight)
    return of_sum if of_grad_h is None else of_sum + of_grad_h, of_scale
