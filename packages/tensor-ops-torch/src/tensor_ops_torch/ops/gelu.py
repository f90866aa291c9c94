"""GELU."""

import torch
from torch import Tensor


def composed(x: Tensor, approximate: str = "tanh") -> Tensor:
    return torch.nn.functional.gelu(x, approximate=approximate)


def gradients(
    grad: Tensor, x: Tensor, approximate: str, *, needs: tuple[bool, ...]
) -> tuple[Tensor, ...]:
    return (torch.ops.aten.gelu_backward(grad, x, approximate=approximate),)
