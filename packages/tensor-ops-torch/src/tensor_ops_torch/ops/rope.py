"""Rotary position embedding.

>>> import torch
>>> import tensor_ops_torch
>>> x = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
>>> tensor_ops_torch.rope(x, torch.tensor([0.6, 0.0]), torch.tensor([0.8, 1.0]))
tensor([[-1.8000, -4.0000,  2.6000,  2.0000]])
"""

import torch
from torch import Tensor

from tensor_ops_torch.operators.rows import sum_of, wide_dtype


def composed(x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool = False) -> Tensor:
    wide = wide_dtype(x)
    a, b = _pairs(x.to(wide), interleaved)
    c, s = cos.to(wide), sin.to(wide)
    return _joined(a * c - b * s, b * c + a * s, interleaved).to(x.dtype)


def gradients(
    grad: Tensor,
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    interleaved: bool,
    *,
    needs: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    grad_x = grad_cos = grad_sin = None
    if needs[0]:
        # The transpose of a rotation is the rotation back.
        grad_x = torch.ops.tensor_ops.rope(grad, cos, -sin, interleaved=interleaved)
    if needs[1] or needs[2]:
        wide = wide_dtype(x)
        a, b = _pairs(x.to(wide), interleaved)
        grad_a, grad_b = _pairs(grad.to(wide), interleaved)
        grad_cos = (grad_a * a + grad_b * b).sum_to_size(cos.shape).to(cos.dtype)
        grad_sin = (grad_b * a - grad_a * b).sum_to_size(sin.shape).to(sin.dtype)
    return grad_x, grad_cos if needs[1] else None, grad_sin if needs[2] else None


def tangents(
    of_x: Tensor | None,
    of_cos: Tensor | None,
    of_sin: Tensor | None,
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    interleaved: bool,
) -> Tensor:
    wide, parts = wide_dtype(x), []
    a, b = _pairs(x.to(wide), interleaved)
    if of_x is not None:
        parts += [composed(of_x.to(wide), cos, sin, interleaved=interleaved)]
    if of_cos is not None:
        c = of_cos.to(wide)
        parts += [_joined(a * c, b * c, interleaved)]
    if of_sin is not None:
        s = of_sin.to(wide)
        parts += [_joined(-b * s, a * s, interleaved)]
    return sum_of(parts)


def _pairs(x: Tensor, interleaved: bool) -> tuple[Tensor, Tensor]:
    if interleaved:
        return x[..., 0::2], x[..., 1::2]
    a, b = x.chunk(2, dim=-1)
    return a, b


def _joined(a: Tensor, b: Tensor, interleaved: bool) -> Tensor:
    if interleaved:
        return torch.stack((a, b), dim=-1).reshape(*a.shape[:-1], 2 * a.shape[-1])
    return torch.cat((a, b), dim=-1)
