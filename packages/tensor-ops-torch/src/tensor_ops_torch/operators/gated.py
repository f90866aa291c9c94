"""Formulas of an activation of one tensor, times another."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from tensor_ops_torch.operators.backward import gradient_by_backend
from tensor_ops_torch.operators.rows import is_differentiated, needed_like, sum_of, wide_dtype

__all__ = ["formulas_of", "formulas_of_gradients"]


def formulas_of(activation: ModuleType, derivative: str) -> tuple[Callable[..., Any], ...]:
    """Return `composed`, `precise`, `gradients` and `tangents` of the product.

    `activation` is the file of the activation in `tensor_ops_torch.ops`, with `composed`, `precise`
    and `along`; `derivative` is the name of the product's. `scalars` are the activation's.
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
        if not is_differentiated():
            found = gradient_by_backend(derivative, grad, gate, up, *scalars)
            if found is not None:
                return tuple(found)
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


def formulas_of_gradients(
    product: ModuleType, activation: ModuleType, derivative: ModuleType
) -> tuple[Callable[..., Any], ...]:
    """Return `composed`, `precise`, `gradients` and `tangents` of the gradients of such a product.

    The modules are the files of the product, of its activation and of the activation's gradient.
    """

    def composed(
        grad: Tensor, gate: Tensor, up: Tensor, *scalars: Any, **named: Any
    ) -> tuple[Tensor, Tensor]:
        wide = wide_dtype(gate)
        grad, value = grad.to(wide), gate.to(wide)
        of_gate = derivative.precise(grad * up.to(wide), value, *scalars, **named)
        of_up: Tensor = product.composed(value, grad, *scalars, **named)
        return of_gate.to(gate.dtype), of_up.to(up.dtype)

    def precise(
        grad: Tensor, gate: Tensor, up: Tensor, *scalars: Any, **named: Any
    ) -> tuple[Tensor, Tensor]:
        """Return the gradients in the dtype of the tensors; all factors keep their digits."""
        of_gate = derivative.precise(grad * up, gate, *scalars, **named)
        return of_gate, product.precise(gate, grad, *scalars, **named)

    def gradients(
        of_gate: Tensor,
        of_up: Tensor,
        grad: Tensor,
        gate: Tensor,
        up: Tensor,
        *scalars: Any,
        needs: tuple[bool, ...],
    ) -> tuple[Tensor | None, ...]:
        g, x, u, p, q = _wide(grad, gate, up, of_gate, of_up)
        slope, bend = derivative.gradients(p, g * u, x, *scalars, needs=(True, True))
        found = (
            slope * u + q * activation.composed(x, *scalars),
            bend + activation.along(q * g, x, *scalars),
            slope * g,
        )
        return needed_like(found, (grad, gate, up), needs)

    def tangents(
        of_grad: Tensor | None,
        of_gate: Tensor | None,
        of_up: Tensor | None,
        grad: Tensor,
        gate: Tensor,
        up: Tensor,
        *scalars: Any,
    ) -> tuple[Tensor, Tensor]:
        g, x, u = _wide(grad, gate, up)
        factors, values = [], []
        if of_grad is not None:
            factors += [of_grad.to(g.dtype) * u]
            values += [of_grad.to(g.dtype) * activation.composed(x, *scalars)]
        if of_up is not None:
            factors += [g * of_up.to(g.dtype)]
        moved = None if of_gate is None else of_gate.to(g.dtype)
        if moved is not None:
            values += [activation.along(g * moved, x, *scalars)]
        of_factor = sum_of(factors) if factors else None
        of_slope = derivative.tangents(of_factor, moved, g * u, x, *scalars)
        return of_slope, sum_of(values) if values else torch.zeros_like(g)

    return composed, precise, gradients, tangents


def _wide(*tensors: Tensor) -> tuple[Tensor, ...]:
    wide = wide_dtype(tensors[0])
    return tuple(each.to(wide) for each in tensors)
