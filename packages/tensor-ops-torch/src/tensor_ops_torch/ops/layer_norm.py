"""Layer normalization.

>>> import torch
>>> import tensor_ops_torch
>>> tensor_ops_torch.layer_norm(torch.tensor([[1.0, 3.0]]), torch.ones(2), torch.ones(2), eps=0.0)
tensor([[0., 2.]])
"""

import torch
from torch import Tensor

from tensor_ops_torch.rows import has_ordinary_squares, in_range, sum_rows, wide_dtype


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
    if not has_ordinary_squares(inverse):
        return composed(x, weight, bias, eps)
    scaled = centred * inverse * weight
    return scaled if bias is None else scaled + bias


def _centred_in_range(x: Tensor, eps: float) -> tuple[Tensor, float | Tensor, Tensor | None]:
    """Return rows of float64 less their means, times powers of two, with eps for them, and those.

    It is `in_range` for rows whose sum may overflow, or whose differences from their mean. Rows of
    other dtypes are returned as they are.
    """
    if x.dtype is not torch.float64:
        return x, eps, None
    overflows = ~_centred(x.detach()).isfinite() & x.isfinite()
    part = torch.where(overflows.any(-1, keepdim=True), _PART, 1.0).to(x.dtype)
    rows, eps_of_rows, power = in_range(_centred(x * part), eps * part * part)
    return rows, eps_of_rows, part if power is None else part * power


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
    wide = wide_dtype(x)
    rows, eps_of_rows, power = _centred_in_range(x, eps)
    grad, values, scale = grad.to(wide), rows.to(wide), weight.to(wide)
    variance, mean = torch.var_mean(values, dim=-1, correction=0, keepdim=True)
    inverse = (variance + eps_of_rows).rsqrt()
    grad_x: Tensor | None
    if torch.is_grad_enabled():
        # PyTorch's fused form has no derivative with respect to the statistics.
        normalized = (values - mean) * inverse
        along = grad * scale
        centred = along - along.mean(-1, keepdim=True)
        grad_x = (centred - normalized * (along * normalized).mean(-1, keepdim=True)) * inverse
        grad_weight, grad_bias = sum_rows(grad * normalized), sum_rows(grad)
    else:
        # Of the bias it looks at nothing but shape and dtype.
        grad_x, grad_weight, grad_bias = torch.ops.aten.native_layer_norm_backward(
            grad, values, weight.shape, mean, inverse, scale, scale, list(needs)
        )
    if grad_x is not None and power is not None:
        grad_x = grad_x * power
    # The bias has the dtype of the weight.
    found = zip((grad_x, grad_weight, grad_bias), (x, weight, weight), needs, strict=True)
    return tuple(each.to(like.dtype) if needed else None for each, like, needed in found)
