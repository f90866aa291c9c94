"""Layer normalization.

>>> import torch
>>> import tensor_ops_torch
>>> tensor_ops_torch.layer_norm(torch.tensor([[1.0, 3.0]]), torch.ones(2), torch.ones(2), eps=0.0)
tensor([[0., 2.]])
"""

from collections.abc import Callable

import torch
from torch import Tensor

from tensor_ops_torch.operators.backward import gradient_by_backend
from tensor_ops_torch.operators.norm_gradients import NormGradient
from tensor_ops_torch.operators.rows import (
    has_ordinary_squares,
    in_range,
    is_differentiated,
    needed_like,
    sum_of,
    sum_rows,
    wide_dtype,
)


def composed(x: Tensor, weight: Tensor, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    wide = wide_dtype(x)
    if wide is torch.float64:
        rows, eps_of_rows, _ = _centred_in_range(x, eps)
        scaled = rows * (rows.square().mean(-1, keepdim=True) + eps_of_rows).rsqrt() * weight
        return scaled if bias is None else scaled + bias
    shift = None if bias is None else bias.to(wide)
    y = torch.nn.functional.layer_norm(x.to(wide), weight.shape, weight.to(wide), shift, eps)
    return y.to(x.dtype)


def precise(x: Tensor, weight: Tensor, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Return the norm in float64 from centred rows: PyTorch's own subtracts products of the mean.

    Few rows need powers of two.
    """
    centred = _centred(x)
    inverse = (centred.square().mean(-1, keepdim=True) + eps).rsqrt()
    if not has_ordinary_squares(inverse, _MOST):
        return composed(x, weight, bias, eps)
    scaled = centred * inverse * weight
    return scaled if bias is None else scaled + bias


def _centred_in_range(x: Tensor, eps: float) -> tuple[Tensor, float | Tensor, Tensor | None]:
    """Return rows of float64 less their means, times powers of two, with eps for them, and those.

    It is `in_range` for rows whose sum may overflow, or whose differences from their mean, and for
    those whose differences are subnormal. Rows of other dtypes are returned as they are.
    """
    if x.dtype is not torch.float64:
        return x, eps, None
    overflows = ~_centred(x.detach()).isfinite() & x.isfinite()
    is_tiny = (x.detach().abs() < _TINY).all(-1, keepdim=True)
    part = torch.where(overflows.any(-1, keepdim=True), _PART, 1.0).to(x.dtype)
    part = part.masked_fill(is_tiny, _GROWN)
    rows, eps_of_rows, power = in_range(_centred(x * part), eps * part * part)
    return rows, eps_of_rows, part if power is None else part * power


# Subnormal differences show in the result where an inverse deviation is larger than this.
_MOST = 1e15
# The differences of smaller numbers may need digits below the least subnormal number.
_TINY, _GROWN = 2.0**-800, 2.0**128
# A sum of less than 2^39 terms stays finite.
_PART = 2.0**-40


def _centred(rows: Tensor) -> Tensor:
    centred = rows - rows.mean(-1, keepdim=True)
    return centred - centred.mean(-1, keepdim=True)  # what rounding the mean left


def saved(x: Tensor, weight: Tensor, bias: Tensor | None, y: Tensor) -> tuple[Tensor, ...]:
    return x, weight


def gradients(
    grad: Tensor, x: Tensor, weight: Tensor, eps: float, *, needs: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    found: tuple[Tensor | None, ...] | None
    if is_differentiated():
        found = formulas(grad, x, weight, eps)
    else:
        found = gradient_by_backend("layer_norm_backward", grad, x, weight, eps)
        if found is not None:
            return found if needs[2] else (*found[:2], None)  # there may be no bias
        found = _fused(grad, x, weight, eps, needs)
    # The bias has the dtype of the weight.
    return needed_like(found, (x, weight, weight), needs)


def _fused(
    grad: Tensor, x: Tensor, weight: Tensor, eps: float, needs: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """Return the gradients by PyTorch's fused form, which cannot be differentiated."""
    values, mean, inverse, power = _statistics(x, eps, is_fused=True)
    grad, scale = grad.to(values.dtype), weight.to(values.dtype)
    # It looks at nothing of the bias but its shape and dtype, which are those of the weight.
    grad_x, *others = torch.ops.aten.native_layer_norm_backward(
        grad, values, weight.shape, mean, inverse, scale, scale, list(needs)
    )
    return grad_x if grad_x is None or power is None else grad_x * power, *others


def formulas(grad: Tensor, x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of rows, weight and bias by functions that can be differentiated."""
    at = of_gradient(grad, x, weight, eps)
    return at.across(at.grad * at.weight), sum_rows(at.grad * at.normalized), sum_rows(at.grad)


def of_gradient(grad: Tensor, x: Tensor, weight: Tensor, eps: float) -> NormGradient:
    """Return the gradients at a place where they are differentiated."""
    normalized, scale, across = _normalized_rows(x, eps)
    wide = normalized.dtype
    return NormGradient(grad.to(wide), weight.to(wide), normalized, scale, True, across)


def tangents(
    of_x: Tensor | None,
    of_weight: Tensor | None,
    of_bias: Tensor | None,
    x: Tensor,
    weight: Tensor,
    eps: float,
) -> Tensor:
    normalized, _, across = _normalized_rows(x, eps)
    wide, parts = normalized.dtype, []
    if of_x is not None:
        parts += [across(of_x) * weight.to(wide)]
    if of_weight is not None:
        parts += [normalized * of_weight.to(wide)]
    if of_bias is not None:
        parts += [of_bias.to(wide).expand_as(normalized)]
    return sum_of(parts)


def _statistics(
    x: Tensor, eps: float, is_fused: bool = False
) -> tuple[Tensor, Tensor, Tensor, float | Tensor | None]:
    """Return rows in the wide dtype, their means and inverse deviations, and powers of two.

    The rows are those of `_centred_in_range`, and so are the powers. What is fused cannot be
    differentiated.
    """
    rows, eps_of_rows, power = _centred_in_range(x, eps)
    values = rows.to(wide_dtype(x))
    if is_fused and power is None and values.numel():
        # On a CPU PyTorch's norm has both in a fraction of the time of `var_mean`.
        _, mean, inverse = torch.native_layer_norm(values, values.shape[-1:], None, None, eps)
        return values, mean, inverse, None
    variance, mean = torch.var_mean(values, dim=-1, correction=0, keepdim=True)
    return values, mean, (variance + eps_of_rows).rsqrt(), power


def _normalized_rows(x: Tensor, eps: float) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]:
    """Return normalized rows, their inverse deviations, and the derivative, as of rms_norm."""
    values, mean, inverse, power = _statistics(x, eps)
    normalized = (values - mean) * inverse

    def across(along: Tensor) -> Tensor:
        along = along.to(normalized.dtype)
        centred = along - along.mean(-1, keepdim=True)
        found = (centred - normalized * (along * normalized).mean(-1, keepdim=True)) * inverse
        return found if power is None else found * power

    return normalized, inverse if power is None else inverse * power, across
