"""What the gradients of norms share."""

import torch
from torch import Tensor

__all__ = ["inverse_rms", "rms_norm_gradients", "sum_rows", "wide_dtype"]


def wide_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype that gradients are computed in: float32 for half types."""
    return torch.promote_types(x.dtype, torch.float32)


def sum_rows(x: Tensor) -> Tensor:
    """Return the sum of all rows."""
    return x.sum(dim=tuple(range(x.ndim - 1))) if x.ndim > 1 else x


def inverse_rms(x: Tensor, eps: float) -> Tensor:
    """Return 1 / sqrt(mean(x^2) + eps) of each row, as column of the wide dtype."""
    # The squares of float32 overflow where the op itself does not. MPS has no float64.
    wide = wide_dtype(x) if x.device.type == "mps" else torch.float64
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=wide)
    return (length.square() / x.shape[-1] + eps).rsqrt().to(wide_dtype(x))


def rms_norm_gradients(
    grad: Tensor, x: Tensor, weight: Tensor, eps: float, needs_x: bool, needs_weight: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of `x`, in the wide dtype, and of `weight`."""
    wide = wide_dtype(x)
    scale = inverse_rms(x, eps)
    normalized = x.to(wide) * scale
    grad = grad.to(wide)
    grad_x = grad_weight = None
    if needs_x:
        along = grad * weight.to(wide)
        grad_x = (along - normalized * (along * normalized).mean(-1, keepdim=True)) * scale
    if needs_weight:
        grad_weight = sum_rows(grad * normalized).to(weight.dtype)
    return grad_x, grad_weight
