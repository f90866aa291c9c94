"""Derivatives of the gradients of the norms.

With z the normalized rows, s their scale, a = grad * weight and D the derivative of normalizing,
D(v) = s (v - mean(v) - z mean(v z)), of which a norm without a mean has no first mean: D is
symmetric, the gradient of the rows is D(a), and that of the weight is the sum of grad * z over the
rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from tensor_ops_torch.operators.rows import normalized_rows, sum_rows

__all__ = ["NormGradient", "rms_of_gradient"]


class NormGradient(NamedTuple):
    """Arguments of the gradients of a norm in a wide dtype, and what follows from them."""

    grad: Tensor
    weight: Tensor
    normalized: Tensor
    scale: Tensor  # a column
    is_centred: bool
    across: Callable[[Tensor], Tensor]  # D

    def gradients(
        self, of_rows: Tensor, of_weight: Tensor, of_bias: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of `grad`, the rows and the weight from those of the results."""
        grad, z = self.grad, self.normalized
        along, across = grad * self.weight, self.across(of_rows)
        of_grad = across * self.weight + of_weight * z
        if of_bias is not None:
            of_grad = of_grad + of_bias
        common, product = self._mean(of_rows * z), self._mean(along * z)
        inner = self._mean(of_rows * along) - common * product
        if self.is_centred:
            inner = inner - self._mean(of_rows) * self._mean(along)
        of_x = self.across(grad * of_weight) - self.scale * (
            self.scale * z * inner + product * across + common * self.across(along)
        )
        return of_grad, of_x, sum_rows(across * grad)

    def tangents(
        self, of_grad: Tensor | None, of_x: Tensor | None, of_weight: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the tangents of the gradients of rows, weight and bias."""
        grad, z = self.grad, self.normalized
        along = grad * self.weight
        of_along = grad * 0
        if of_grad is not None:
            of_along = of_along + of_grad * self.weight
        if of_weight is not None:
            of_along = of_along + grad * of_weight
        moved = self.across(of_along)
        total = grad * 0 if of_grad is None else of_grad * z
        if of_x is not None:
            of_z, product = self.across(of_x), self._mean(along * z)
            moved = moved - self.scale * (
                self._mean(z * of_x) * self.across(along)
                + of_z * product
                + z * self._mean(along * of_z)
            )
            total = total + grad * of_z
        bias = grad * 0 if of_grad is None else of_grad
        return moved, sum_rows(total), sum_rows(bias)

    @staticmethod
    def _mean(rows: Tensor) -> Tensor:
        return rows.mean(-1, keepdim=True)


def rms_of_gradient(grad: Tensor, x: Tensor, weight: Tensor, eps: float) -> NormGradient:
    """Return the gradients of rms_norm at a place where they are differentiated."""
    normalized, scale, across = normalized_rows(x, eps)
    wide = normalized.dtype
    return NormGradient(grad.to(wide), weight.to(wide), normalized, scale, False, across)
