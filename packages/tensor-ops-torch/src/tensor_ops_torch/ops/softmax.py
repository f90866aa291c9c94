"""Softmax along the last axis.

>>> import torch
>>> import tensor_ops_torch
>>> tensor_ops_torch.softmax(torch.tensor([[0.0, 0.0, 2.0]]), scale=0.5)
tensor([[0.2119, 0.2119, 0.5761]])
"""

import torch
from torch import Tensor

from tensor_ops_torch.operators.backward import gradient_by_backend
from tensor_ops_torch.operators.rows import is_differentiated, wide_dtype


def composed(x: Tensor, scale: float = 1.0) -> Tensor:
    return torch.softmax(x.to(wide_dtype(x)) * scale, dim=-1).to(x.dtype)


def precise(x: Tensor, scale: float = 1.0) -> Tensor:
    """Return the softmax in float64: differences are scaled, whose rounding errors are small."""
    if abs(scale) < 1:  # a difference that overflows may have an ordinary product
        x, scale = x * 0.25, scale * 4
    top = x.amax(-1, keepdim=True) if scale >= 0 else x.amin(-1, keepdim=True)
    return torch.softmax((x - top) * scale, dim=-1)


def saved(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return (y,)


def along(direction: Tensor, y: Tensor, scale: float) -> Tensor:
    """Return a direction times the derivative of the softmax, which is symmetric."""
    if not is_differentiated():
        of_rows: Tensor | None = gradient_by_backend("softmax_backward", direction, y, scale)
        if of_rows is not None:
            return of_rows
    wide = wide_dtype(y)
    found = torch.ops.aten._softmax_backward_data(direction.to(wide), y.to(wide), -1, wide)
    return found * scale
