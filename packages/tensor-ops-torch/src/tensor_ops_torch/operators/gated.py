"""Formulas of an activation of one tensor, times another."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from tensor_ops_torch.operators.rows import sum_of, wide_dtype

__all__ = ["formulas_of"]


def formulas_of(activation: ModuleType) -> tuple[Callable[..., Any], ...]:
    """Return `composed`, `precise`, `gradients` and `tangents` of the product.

    `activation` is the file of the activation in `tensor_ops_torch.ops`, with `composed`, `precise`
    and `along`. `scalars` are the activation's.
    """

    def composed(gate: Tensor, up: Tensor, *scalars: Any, **named: Any) -> Tensor:
        wide = wide_dtype(gate)
        activated: Tensor = activation.composed(gate.to(wide), *scalars, **named)
        return (activated * up.to(wide)).to(gate.dtype)

    def precise(gate: Tensor, up: Tensor, *scalars: Any, **named: Any) -> Tensor:
        """Return the product in float64, where the activation underflows too."""
        activated = activation.precise(gate, *scalars, **named)
        product = torch.where(gate.abs() < 1e-290, gate * up / 2, activated * up)
        # The activation is zero at zero and at minus infinity only. Anywhere else, its product
        # with infinity is infinity.
        return torch.where(up.isinf() & gate.isfinite(), gate.sign() * up, product)

    def gradients(
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

    def tangents(
        of_gate: Tensor | None, of_up: Tensor | None, gate: Tensor, up: Tensor, *scalars: Any
    ) -> Tensor:
        wide, parts = wide_dtype(gate), []
        value = gate.to(wide)
        if of_gate is not None:
            parts += [activation.along(of_gate.to(wide) * up.to(wide), value, *scalars)]
        if of_up is not None:
            parts += [activation.composed(value, *scalars) * of_up.to(wide)]
        return sum_of(parts)

    return composed, precise, gradients, tangents
