"""Arithmetic of rows, for the norms and their gradients."""

import math
import operator
from collections.abc import Callable, Sequence
from functools import reduce

import torch
from torch import Tensor
from torch.autograd import forward_ad

__all__ = [
    "has_ordinary_squares",
    "in_range",
    "inverse_rms",
    "is_differentiated",
    "may_have_tangents",
    "needed_like",
    "normalized_rows",
    "rms_norm_gradients",
    "rms_norm_tangent",
    "sum_of",
    "sum_rows",
    "wide_dtype",
]

# Smaller rows are scaled as if they were this large: the power of two stays finite.
_TINY = 2.0**-1000


def wide_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype that gradients are computed in: float32 for half types."""
    return torch.promote_types(x.dtype, torch.float32)


def is_differentiated() -> bool:
    """Return whether what is computed here may be differentiated itself.

    PyTorch's fused forms of some gradients have no derivatives.
    """
    return torch.is_grad_enabled() or may_have_tangents()


def may_have_tangents() -> bool:
    """Return whether tensors may have tangents of forward-mode differentiation."""
    # A traced function of torch.compile enters a level that PyTorch's Python does not know of.
    return forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active()


def sum_rows(x: Tensor) -> Tensor:
    """Return the sum of all rows."""
    return x.sum(dim=tuple(range(x.ndim - 1))) if x.ndim > 1 else x


def in_range(rows: Tensor, eps: float | Tensor) -> tuple[Tensor, float | Tensor, Tensor | None]:
    """Return rows times powers of two, so that no square overflows and none that counts vanishes.

    `eps`, a number or a column, is what is added to the mean of their squares; it is returned times
    the square of each row's power. The powers come last, as a column: None for dtypes whose squares
    are taken in a longer one.
    """
    if rows.dtype is not torch.float64 or not rows.shape[-1]:
        return rows, eps, None
    # The result does not depend on the power, and so has no derivative with respect to it.
    largest = rows.detach().abs().amax(-1, keepdim=True)
    root = eps.sqrt() if isinstance(eps, Tensor) else torch.full_like(largest, math.sqrt(eps))
    largest = torch.maximum(largest, root).clamp(min=_TINY)
    # The mantissa is in [1/2, 1): the largest of a row comes to [2, 4), by a normal power.
    power = 4 * torch.frexp(largest).mantissa / largest
    power = torch.where(largest.isfinite(), power, 1.0)
    return rows * power, eps * power * power, power


def has_ordinary_squares(inverse: Tensor, most: float = 1e145) -> bool:
    """Return whether no mean of float64 squares has lost anything to underflow or overflow.

    `inverse` has its inverse square root for each row; above `most` it is not ordinary.
    """
    return bool(((inverse > 1e-150) & (inverse < most)).all())


def inverse_rms(x: Tensor, eps: float | Tensor) -> Tensor:
    """Return 1 / sqrt(mean(x^2) + eps) of each row, as column of the wide dtype.

    The squares of float64 overflow, unless the rows come from `in_range`.
    """
    # The squares of float32 overflow where the op itself does not. MPS has no float64.
    wide = wide_dtype(x) if x.device.type == "mps" else torch.float64
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=wide)
    return (length.square() / x.shape[-1] + eps).rsqrt().to(wide_dtype(x))


def rms_norm_gradients(
    grad: Tensor, x: Tensor, weight: Tensor, eps: float, needs_x: bool, needs_weight: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of `x`, in the wide dtype, and of `weight`."""
    normalized, _, across = normalized_rows(x, eps)
    grad = grad.to(normalized.dtype)
    grad_x = grad_weight = None
    if needs_x:
        grad_x = across(grad * weight.to(grad.dtype))
    if needs_weight:
        grad_weight = sum_rows(grad * normalized).to(weight.dtype)
    return grad_x, grad_weight


def rms_norm_tangent(
    of_x: Tensor | None, of_weight: Tensor | None, x: Tensor, weight: Tensor, eps: float
) -> Tensor:
    """Return the tangent of the norm of `x` in the wide dtype; one of those given may be None."""
    normalized, _, across = normalized_rows(x, eps)
    wide = normalized.dtype
    parts = []
    if of_x is not None:
        parts += [across(of_x) * weight.to(wide)]
    if of_weight is not None:
        parts += [normalized * of_weight.to(wide)]
    return sum_of(parts)


def needed_like(
    found: Sequence[Tensor | None], likes: Sequence[Tensor], needs: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """Return the gradients that are needed, each in the dtype of its argument."""
    return tuple(
        each.to(like.dtype) if each is not None and needed else None
        for each, like, needed in zip(found, likes, needs, strict=True)
    )


def sum_of(parts: Sequence[Tensor]) -> Tensor:
    """Return the sum of one or several tensors."""
    total: Tensor = reduce(operator.add, parts)
    return total


def normalized_rows(x: Tensor, eps: float) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]:
    """Return rows over their root mean squares, the inverses of those, and the derivative.

    The last takes directions, and returns them times the derivative, which is symmetric.
    """
    rows, eps_of_rows, power = in_range(x, eps)
    scale = inverse_rms(rows, eps_of_rows)
    normalized = rows.to(wide_dtype(x)) * scale

    def across(along: Tensor) -> Tensor:
        along = along.to(normalized.dtype)
        found = (along - normalized * (along * normalized).mean(-1, keepdim=True)) * scale
        return found if power is None else found * power

    return normalized, scale if power is None else scale * power, across
