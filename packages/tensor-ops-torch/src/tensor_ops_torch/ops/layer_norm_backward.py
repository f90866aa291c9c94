"""Gradients of layer normalization.

>>> import torch
>>> import tensor_ops_torch
>>> grad, x = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[1.0, 2.0, 6.0]])
>>> tensor_ops_torch.layer_norm_backward(grad, x, torch.ones(3))
(tensor([[ 0.1763, -0.2204,  0.0441]]), tensor([-0.9258,  0.0000,  0.0000]), tensor([1., 0., 0.]))
"""

from torch import Tensor

from tensor_ops_torch.operators.rows import needed_like
from tensor_ops_torch.ops import layer_norm


def composed(
    grad: Tensor, x: Tensor, weight: Tensor, eps: float = 1e-5
) -> tuple[Tensor, Tensor, Tensor]:
    of_x, of_weight, of_bias = layer_norm.formulas(grad, x, weight, eps)
    return of_x.to(grad.dtype), of_weight.to(weight.dtype), of_bias.to(weight.dtype)


def gradients(
    of_x: Tensor,
    of_weight: Tensor,
    of_bias: Tensor,
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    eps: float,
    *,
    needs: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    norm = layer_norm.of_gradient(grad, x, weight, eps)
    found = norm.gradients(of_x, of_weight, of_bias)
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
    return layer_norm.of_gradient(grad, x, weight, eps).tangents(of_grad, of_x, of_weight)
