"""SiLU.

>>> import torch
>>> import tensor_ops_torch
>>> tensor_ops_torch.silu(torch.tensor([-1.0, 0.0, 1.0]))
tensor([-0.2689,  0.0000,  0.7311])
"""

import math

import torch
from torch import Tensor


def composed(x: Tensor) -> Tensor:
    return torch.nn.functional.silu(above_minus_infinity(x))


def above_minus_infinity(x: Tensor) -> Tensor:
    """Return `x` with its least finite number for minus infinity.

    There the activations of PyTorch are -0.0, the limit, and not infinity times zero.
    """
    return x.clamp(min=torch.finfo(x.dtype).min)


def precise(x: Tensor) -> Tensor:
    """Return SiLU in float64, small values at the far tail and -0.0 at minus infinity included."""
    x = x.clamp(min=-1e4)  # there it is -0.0, and not infinity times zero
    # exp(-x) overflows, and exp(x) loses digits, before the result does.
    tail = x * torch.exp(x + 32) * math.exp(-32)
    return torch.where(x < -700, tail, x * torch.sigmoid(x))


def gradients(grad: Tensor, x: Tensor, *, needs: tuple[bool, ...]) -> tuple[Tensor, ...]:
    return (along(grad, x),)


def along(grad: Tensor, x: Tensor) -> Tensor:
    """Return `grad` times the derivative of SiLU at `x`."""
    if not torch.is_grad_enabled():
        return torch.ops.aten.silu_backward(grad, x)
    # PyTorch's fused form has no derivative of its own.
    sigmoid = torch.sigmoid(x)
    return grad * sigmoid * (1 + x * (1 - sigmoid))
