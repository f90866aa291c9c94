"""SiLU of a gate, times another tensor (SwiGLU).

>>> import torch
>>> import tensor_ops_torch
>>> tensor_ops_torch.silu_mul(torch.tensor([-1.0, 1.0]), torch.tensor([2.0, 2.0]))
tensor([-0.5379,  1.4621])
"""

import torch
from torch import Tensor

from tensor_ops_torch.operators.rows import sum_of, wide_dtype
from tensor_ops_torch.ops import silu


def composed(gate: Tensor, up: Tensor) -> Tensor:
    wide = wide_dtype(gate)
    return (silu.composed(gate.to(wide)) * up.to(wide)).to(gate.dtype)


def precise(gate: Tensor, up: Tensor) -> Tensor:
    return times(silu.precise(gate), gate, up)


def times(activated: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    """Return SiLU or GELU of `gate`, times `up`, where the activation underflows too."""
    product = torch.where(gate.abs() < 1e-290, gate * up / 2, activated * up)
    # It is zero at zero and at minus infinity only; anywhere else, infinity times it is infinity.
    return torch.where(up.isinf() & gate.isfinite(), gate.sign() * up, product)


def gradients(
    grad: Tensor, gate: Tensor, up: Tensor, *, needs: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    wide = wide_dtype(gate)
    grad, value = grad.to(wide), gate.to(wide)
    grad_gate = silu.along(grad * up.to(wide), value) if needs[0] else None
    grad_up = grad * silu.composed(value) if needs[1] else None
    return tuple(None if each is None else each.to(gate.dtype) for each in (grad_gate, grad_up))


def tangents(of_gate: Tensor | None, of_up: Tensor | None, gate: Tensor, up: Tensor) -> Tensor:
    wide, parts = wide_dtype(gate), []
    value = gate.to(wide)
    if of_gate is not None:
        parts += [silu.along(of_gate.to(wide) * up.to(wide), value)]
    if of_up is not None:
        parts += [silu.composed(value) * of_up.to(wide)]
    return sum_of(parts)
