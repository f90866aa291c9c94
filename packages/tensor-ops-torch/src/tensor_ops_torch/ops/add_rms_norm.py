"""Residual addition and root mean square layer normalization.

>>> import torch
>>> import tensor_ops_torch
>>> x, residual = torch.tensor([[1.0, 2.0]]), torch.tensor([[2.0, 2.0]])
>>> tensor_ops_torch.add_rms_norm(x, residual, torch.ones(2))
(tensor([[0.8485, 1.1314]]), tensor([[3., 4.]]))
"""

import torch
from torch import Tensor

from tensor_ops_torch.operators.backward import gradient_by_backend
from tensor_ops_torch.operators.rows import (
    has_ordinary_squares,
    in_range,
    inverse_rms,
    is_differentiated,
    rms_norm_gradients,
    rms_norm_tangent,
    sum_of,
    wide_dtype,
)


def composed(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    wide = wide_dtype(x)
    h = x.to(wide) + residual.to(wide)
    rows, eps_of_rows, _ = in_range(*_sums_in_range(x, residual, h, eps))
    y = rows * inverse_rms(rows, eps_of_rows) * weight.to(wide)
    return y.to(x.dtype), h.to(residual.dtype)


def _sums_in_range(
    x: Tensor, residual: Tensor, h: Tensor, eps: float
) -> tuple[Tensor, float | Tensor]:
    """Return `h`, with rows of float64 that overflow in the sum divided by four, and eps for it."""
    if h.dtype is not torch.float64:
        return h, eps
    overflows = h.isinf() & x.isfinite() & residual.isfinite()
    part = torch.where(overflows.any(-1, keepdim=True), 0.25, 1.0).to(h.dtype)
    return x * part + residual * part, eps * part * part


def precise(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """Return the norm and the sum in float64, where few rows need powers of two."""
    h = x + residual
    inverse = inverse_rms(h, eps)
    if not has_ordinary_squares(inverse):
        return composed(x, residual, weight, eps)
    return h * inverse * weight, h


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
    found = None
    if not is_differentiated():
        found = gradient_by_backend("add_rms_norm_backward", grad_y, grad_h, h, weight, eps)
    if found is None:
        grad_sum, grad_weight = rms_norm_gradients(
            grad_y, h, weight, eps, needs_x or needs_residual, needs_weight
        )
        if grad_sum is None:
            return None, None, grad_weight
        grad_sum = grad_sum + grad_h
    else:
        grad_sum, grad_weight = found
    # y has the dtype of x, and h that of the residual.
    grad_x = grad_sum.to(grad_y.dtype) if needs_x else None
    grad_residual = grad_sum.to(h.dtype) if needs_residual else None
    return grad_x, grad_residual, grad_weight


def tangents(
    of_x: Tensor | None,
    of_residual: Tensor | None,
    of_weight: Tensor | None,
    h: Tensor,
    weight: Tensor,
    eps: float,
) -> tuple[Tensor, Tensor]:
    parts = [each.to(wide_dtype(h)) for each in (of_x, of_residual) if each is not None]
    of_h = sum_of(parts) if parts else None
    of_y = rms_norm_tangent(of_h, of_weight, h, weight, eps)
    return of_y, torch.zeros_like(h) if of_h is None else of_h
