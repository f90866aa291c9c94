"""Formulas of an activation of one tensor, times another.

The functions take the file of the activation in `tensor_ops_torch.ops`, with `composed`, `precise`
and `along`, and return those of the product. `scalars` are the activation's.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from tensor_ops_torch.operators.rows import sum_of, wide_dtype

__all__ = ["composed", "gradients", "precise", "tangents"]


def composed(activation: ModuleType) -> Callable[..., Tensor]:
    def call(gate: Tensor, up: Tensor, *scalars: Any, **named: Any) -> Tensor:
        wide = wide_dtype(gate)
        activated: Tensor = activation.composed(gate.to(wide), *scalars, **named)
        return (activated * up.to(wide)).to(gate.dtype)

    return call


def precise(activation: ModuleType) -> Callable[..., Tensor]:
    """Return the product in float64, where the activation underflows too."""

    def call(gate: Tensor, up: Tensor, *scalars: Any, **named: Any) -> Tensor:
        activated = activation.precise(gate, *scalars, **named)
        product = torch.where(gate.abs() < 1e-290, gate * up / 2, activated * up)
        # The activation is zero at zero and at minus infinity only. Anywhere else, its product
        # with infinity is infinity.
        return torch.where(up.isinf() & gate.isfinite(), gate.sign() * up, product)

    return call


def gradients(activation: ModuleType) -> Callable[..., tuple[Tensor | None, ...]]:
    def call(
        grad: Tensor, gate: Tensor, up: Tensor, *scalars: Any, needs: tuple[bool, ...]
    ) -> tuple[Tensor | None, ...]:
        wide = wide_dtype(gate)
        grad, value = grad.to(wide), gate.to(wide)
        grad_gate = grad_up = None
        if needs[0]:
            grad_gate = activation.along(grad * up.to(wide), value, *scalars).to(gate.dtype)
        if needs[1]:
            grad_up = (grad * activation.composed(value, *scalars)).to(up.dtype)
        return grad_gate, grad_up

    return call


def tangents(activation: ModuleType) -> Callable[..., Tensor]:
    def call(
        of_gate: Tensor | None, of_up: Tensor | None, gate: Tensor, up: Tensor, *scalars: Any
    ) -> Tensor:
        wide, parts = wide_dtype(gate), []
        value = gate.to(wide)
        if of_gate is not None:
            parts += [activation.along(of_gate.to(wide) * up.to(wide), value, *scalars)]
        if of_up is not None:
            parts += [activation.composed(value, *scalars) * of_up.to(wide)]
        return sum_of(parts)

    return call
