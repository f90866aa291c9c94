"""The derivative of an activation, times two factors.

Tested by tests/conformance/.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["slope_times"]

Array = np.ndarray[Any, Any]


def slope_times(slope: Callable[..., Array], x: Array, a: Array, b: Array) -> Array:
    """Return a slope at `x`, times two factors.

    ``slope(x, factor)`` is the slope times a factor, and ``slope(x, factor, exponent=exponent)``
    that times a power of two. So the product of the factors may be too large for float64 where the
    result is not.
    """
    product = a * b
    result = slope(x, product)
    beyond = np.isinf(product) & np.isfinite(a) & np.isfinite(b)
    if beyond.any():
        (a, of_a), (b, of_b) = np.frexp(a[beyond]), np.frexp(b[beyond])
        result[beyond] = slope(x[beyond], a * b, exponent=of_a + of_b)
    return result
