"""GELU of a gate, times another tensor (GeGLU).

>>> import torch
>>> import tensor_ops_torch
>>> tensor_ops_torch.gelu_mul(torch.tensor([-1.0, 1.0]), torch.tensor([2.0, 2.0]), "none")
tensor([-0.3173,  1.6827])
"""

import torch
from torch import Tensor

from tensor_ops_torch.ops import gelu, silu_mul
from tensor_ops_torch.rows import wide_dtype


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
        along = grad * up.to(wide)
        grad_gate = torch.ops.aten.gelu_backward(along, value, approximate=approximate)
        grad_gate = grad_gate.to(gate.dtype)
    if needs[1]:
        activated = torch.nn.functional.gelu(value, approximate=approximate)
        grad_up = (grad * activated).to(up.dtype)
    return grad_gate, grad_up
