"""SiLU.

>>> import torch
>>> import tensor_ops_torch
>>> tensor_ops_torch.silu(torch.tensor([-1.0, 0.0, 1.0]))
tensor([-0.2689,  0.0000,  0.7311])
"""

import math

import torch
from torch import Tensor

from tensor_ops_torch.operators.backward import gradient_by_backend
from tensor_ops_torch.operators.rows import is_differentiated, wide_dtype


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


def along(direction: Tensor, x: Tensor) -> Tensor:
    """Return a direction times the derivative of SiLU at `x`."""
    if not is_differentiated():
        found = gradient_by_backend("silu_backward", direction, x)
        if found is not None:
            return found
        return torch.ops.aten.silu_backward(direction, saturated(x))
    x = saturated(x)
    wide = wide_dtype(x)
    x, sigmoid = x.to(wide), torch.sigmoid(x.to(wide))
    return direction.to(wide) * sigmoid * (1 + x * (1 - sigmoid))


def saturated(x: Tensor) -> Tensor:
    """Return `x` brought to a range beyond which the derivatives of SiLU and GELU do not change.

    They are 0 or 1 there in every dtype. Far outside, and at the infinities, their formulas have
    products of infinity and zero.
    """
    return x.clamp(-1e4, 1e4)
