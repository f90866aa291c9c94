"""Residual addition and root mean square layer normalization.

>>> import torch
>>> import tensor_ops_torch
>>> x, residual = torch.tensor([[1.0, 2.0]]), torch.tensor([[2.0, 2.0]])
>>> tensor_ops_torch.add_rms_norm(x, residual, torch.ones(2))
(tensor([[0.8485, 1.1314]]), tensor([[3., 4.]]))
"""

from torch import Tensor

from tensor_ops_torch.ops import rms_norm
from tensor_ops_torch.rows import rms_norm_gradients, wide_dtype


def composed(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    wide = wide_dtype(x)
    h = x.to(wide) + residual.to(wide)
    y = rms_norm.composed(h, weight.to(wide), eps)
    return y.to(x.dtype), h.to(x.dtype)


def saved(x: Tensor, residual: Tensor, weight: Tensor, y: Tensor, h: Tensor) -> tuple[Tensor, ...]:
    return h, weight


def gradients(
    grad_y: Tensor,
    grad_h: Tensor,
    h: Tensor,
    weight: Tensor,
    eps: float,
    *,
    needs: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    needs_x, needs_residual, needs_weight = needs
    grad_sum, grad_weight = rms_norm_gradients(
        grad_y, h, weight, eps, needs_x or needs_residual, needs_weight
    )
    if grad_sum is not None:
        grad_sum = (grad_sum + grad_h).to(h.dtype)
    return grad_sum if needs_x else None, grad_sum if needs_residual else None, grad_weight
