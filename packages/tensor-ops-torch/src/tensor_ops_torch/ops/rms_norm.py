"""Root mean square layer normalization.

>>> import torch
>>> import tensor_ops_torch
>>> tensor_ops_torch.rms_norm(torch.tensor([[3.0, 4.0]]), torch.ones(2))
tensor([[0.8485, 1.1314]])
"""

from torch import Tensor

from tensor_ops_torch.operators.backward import gradient_by_backend
from tensor_ops_torch.operators.rows import (
    has_ordinary_squares,
    in_range,
    inverse_rms,
    is_differentiated,
    rms_norm_gradients,
    rms_norm_tangent,
    wide_dtype,
)


def composed(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    wide = wide_dtype(x)
    rows, eps_of_rows, _ = in_range(x, eps)
    return (rows.to(wide) * inverse_rms(rows, eps_of_rows) * weight.to(wide)).to(x.dtype)


def precise(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """Return the norm in float64, where few rows need powers of two."""
    inverse = inverse_rms(x, eps)
    return x * inverse * weight if has_ordinary_squares(inverse) else composed(x, weight, eps)


def gradients(
    grad: Tensor, x: Tensor, weight: Tensor, eps: float, *, needs: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    if not is_differentiated():
        found = gradient_by_backend("rms_norm_backward", grad, x, weight, eps)
        if found is not None:
            return tuple(found)
    grad_x, grad_weight = rms_norm_gradients(grad, x, weight, eps, *needs)
    return None if grad_x is None else grad_x.to(x.dtype), grad_weight


def tangents(
    of_x: Tensor | None, of_weight: Tensor | None, x: Tensor, weight: Tensor, eps: float
) -> Tensor:
    return rms_norm_tangent(of_x, of_weight, x, weight, eps)
