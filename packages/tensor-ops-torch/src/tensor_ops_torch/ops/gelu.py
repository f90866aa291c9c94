"""GELU.

>>> import torch
>>> import tensor_ops_torch
>>> tensor_ops_torch.gelu(torch.tensor([-1.0, 0.0, 1.0]), "none")
tensor([-0.1587,  0.0000,  0.8413])
"""

import torch
from torch import Tensor


def composed(x: Tensor, approximate: str = "tanh") -> Tensor:
    return torch.nn.functional.gelu(x, approximate=approximate)


def gradients(
    grad: Tensor, x: Tensor, approximate: str, *, needs: tuple[bool, ...]
) -> tuple[Tensor, ...]:
    return (torch.ops.aten.gelu_backward(grad, x, approximate=approximate),)
