"""Layer normalization.

>>> import torch
>>> import tensor_ops_torch
>>> tensor_ops_torch.layer_norm(torch.tensor([[1.0, 3.0]]), torch.ones(2), torch.ones(2), eps=0.0)
tensor([[0., 2.]])
"""

import torch
from torch import Tensor

from tensor_ops_torch.rows import sum_rows, wide_dtype


def composed(x: Tensor, weight: Tensor, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias, eps)


def precise(x: Tensor, weight: Tensor, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Return the norm from centred rows: PyTorch's own subtracts products of the mean."""
    centred = x - x.mean(-1, keepdim=True)
    centred = centred - centred.mean(-1, keepdim=True)  # what rounding the mean left
    variance = centred.square().mean(-1, keepdim=True)
    scaled = centred * (variance + eps).rsqrt() * weight
    return scaled if bias is None else scaled + bias


def saved(x: Tensor, weight: Tensor, bias: Tensor | None, y: Tensor) -> tuple[Tensor, ...]:
    return x, weight


def gradients(
    grad: Tensor, x: Tensor, weight: Tensor, eps: float, *, needs: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    wide = wide_dtype(x)
    grad, values, scale = grad.to(wide), x.to(wide), weight.to(wide)
    variance, mean = torch.var_mean(values, dim=-1, correction=0, keepdim=True)
    inverse = (variance + eps).rsqrt()
    found: tuple[Tensor, ...]
    if torch.is_grad_enabled():
        # PyTorch's fused form has no derivative with respect to the statistics.
        normalized = (values - mean) * inverse
        along = grad * scale
        centred = along - along.mean(-1, keepdim=True)
        grad_x = (centred - normalized * (along * normalized).mean(-1, keepdim=True)) * inverse
        found = grad_x, sum_rows(grad * normalized), sum_rows(grad)
    else:
        # Of the bias it looks at nothing but shape and dtype.
        found = torch.ops.aten.native_layer_norm_backward(
            grad, values, weight.shape, mean, inverse, scale, scale, list(needs)
        )
    return tuple(
        each.to(x.dtype) if needed else None for each, needed in zip(found, needs, strict=True)
    )
