"""Residual addition and root mean square layer normalization."""

from torch import Tensor

from tensor_ops_torch.ops import rms_norm
from tensor_ops_torch.rows import rms_norm_gradients


def composed(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    h = x + residual
    return rms_norm.composed(h, weight, eps), h


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
