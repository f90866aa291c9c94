"""GELU of a gate, times another tensor (GeGLU).

>>> import torch
>>> import tensor_ops_torch
>>> tensor_ops_torch.gelu_mul(torch.tensor([-1.0, 1.0]), torch.tensor([2.0, 2.0]), "none")
tensor([-0.3173,  1.6827])
"""

from torch import Tensor

from tensor_ops_torch.operators.rows import sum_of, wide_dtype
from tensor_ops_torch.ops import gelu, silu_mul


def composed(gate: Tensor, up: Tensor, approximate: str = "tanh") -> Tensor:
    wide = wide_dtype(gate)
    return (gelu.composed(gate.to(wide), approximate) * up.to(wide)).to(gate.dtype)


def precise(gate: Tensor, up: Tensor, approximate: str = "tanh") -> Tensor:
    return silu_mul.times(gelu.precise(gate, approximate), gate, up)


def gradients(
    grad: Tensor, gate: Tensor, up: Tensor, approximate: str, *, needs: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    wide = wide_dtype(gate)
    grad, value = grad.to(wide), gate.to(wide)
    grad_gate = grad_up = None
    if needs[0]:
        grad_gate = gelu.along(grad * up.to(wide), value, approximate).to(gate.dtype)
    if needs[1]:
        grad_up = (grad * gelu.composed(value, approximate)).to(up.dtype)
    return grad_gate, grad_up


def tangents(
    of_gate: Tensor | None, of_up: Tensor | None, gate: Tensor, up: Tensor, approximate: str
) -> Tensor:
    wide, parts = wide_dtype(gate), []
    value = gate.to(wide)
    if of_gate is not None:
        parts += [gelu.along(of_gate.to(wide) * up.to(wide), value, approximate)]
    if of_up is not None:
        parts += [gelu.composed(value, approximate) * of_up.to(wide)]
    return sum_of(parts)
