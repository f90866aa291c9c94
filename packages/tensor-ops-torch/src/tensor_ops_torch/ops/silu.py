"""SiLU.

>>> import torch
>>> import tensor_ops_torch
>>> tensor_ops_torch.silu(torch.tensor([-1.0, 0.0, 1.0]))
tensor([-0.2689,  0.0000,  0.7311])
"""

import torch
from torch import Tensor


def composed(x: Tensor) -> Tensor:
    return torch.nn.functional.silu(x)


def gradients(grad: Tensor, x: Tensor, *, needs: tuple[bool, ...]) -> tuple[Tensor, ...]:
    return (along(grad, x),)


def along(grad: Tensor, x: Tensor) -> Tensor:
    """Return `grad` times the derivative of SiLU at `x`."""
    if not torch.is_grad_enabled():
        return torch.ops.aten.silu_backward(grad, x)
    # PyTorch's fused form has no derivative of its own.
    sigmoid = torch.sigmoid(x)
    return grad * sigmoid * (1 + x * (1 - sigmoid))
