"""GELU.

>>> import torch
>>> import tensor_ops_torch
>>> tensor_ops_torch.gelu(torch.tensor([-1.0, 0.0, 1.0]), "none")
tensor([-0.1587,  0.0000,  0.8413])
"""

import math

import torch
from torch import Tensor

from tensor_ops_torch.operators.backward import gradient_by_backend
from tensor_ops_torch.operators.rows import is_differentiated
from tensor_ops_torch.ops import silu


def composed(x: Tensor, approximate: str = "tanh") -> Tensor:
    gelu = torch.nn.functional.gelu
    if approximate == "tanh":
        return gelu(silu.above_minus_infinity(x), approximate=approximate)
    # Beyond 40 the result is x or -0.0 in every dtype. On CPUs PyTorch's own is NaN at infinity
    # there, or 0.0 for every zero, depending on the vectors that the processor has.
    near = x.clamp(-40, 40)
    return torch.where(near == x, gelu(near), x.clamp(min=-0.0))


def precise(x: Tensor, approximate: str = "tanh") -> Tensor:
    """Return GELU in float64 without the cancellation of 1 + tanh and of 1 + erf."""
    x = x.clamp(min=-1e4)  # there it is -0.0, and not infinity times zero
    if approximate == "none":
        return x / 2 * torch.erfc(x * -math.sqrt(0.5))
    return x * torch.sigmoid(math.sqrt(8 / math.pi) * x * (1 + 0.044715 * x * x))


def along(direction: Tensor, x: Tensor, approximate: str) -> Tensor:
    """Return a direction times the derivative of GELU at `x`."""
    if not is_differentiated():
        found = gradient_by_backend("gelu_backward", direction, x, approximate)
        if found is not None:
            return found
    x = silu.saturated(x)
    return torch.ops.aten.gelu_backward(direction, x, approximate=approximate)
