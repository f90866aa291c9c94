"""Products with a logistic sigmoid, exact in both tails."""

from typing import Any

import numpy as np

__all__ = ["multiply_by_sigmoid"]

Array = np.ndarray[Any, Any]


def multiply_by_sigmoid(x: Array, argument: Array, out: Array) -> None:
    """Write ``x / (1 + exp(-argument))`` into `out`, which may be `x` itself.

    `argument` has the sign of x. Minus infinity gives zero, the limit.
    """
    power = np.exp(-np.abs(argument))
    # For a negative argument the factor is e / (1 + e); its numerator keeps the tail's digits.
    factor = np.where(argument < 0, power, 1)
    power += 1
    factor /= power
    finite = np.maximum(x, np.finfo(x.dtype).min)
    np.multiply(finite, factor, out=out)
