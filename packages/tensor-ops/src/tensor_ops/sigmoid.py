"""Products with a logistic sigmoid, exact in both tails."""

from typing import Any

import numpy as np

__all__ = ["silu_of"]

Array = np.ndarray[Any, Any]

# Below these, 1 + exp(-x) is exp(-x) to the last place, and not yet infinite.
DEEP = {np.dtype(np.float32): -80, np.dtype(np.float64): -700}


def silu_of(x: Array, up: Array | None = None, out: Array | None = None) -> Array:
    """Return ``x / (1 + exp(-x))``, times `up` if it is given.

    The result is in `out` if that is given, which may be any of the inputs. Minus infinity gives
    -0.0, the limit.
    """
    deep = x < DEEP[x.dtype]
    tail = _tail(x[deep], 1 if up is None else up[deep]) if deep.any() else None
    power = np.negative(x)
    np.exp(power, out=power)
    power += 1
    if up is None:
        result = np.divide(x, power, out=out)
    else:
        # In this order, since half of the smallest x may be subnormal.
        np.divide(up, power, out=power)
        result = np.multiply(x, power, out=out)
    if tail is not None:
        result[deep] = tail
    return result


def _tail(x: Array, up: Array | int) -> Array:
    """Return ``x * exp(x) * up`` in float64, in halves that stay normal if the product does."""
    finite = np.maximum(x, np.finfo(x.dtype).min).astype(np.float64)
    half = np.exp(finite / 2)
    product: Array = (finite * half) * (up * half)
    # However small, a tail that is not zero keeps an infinity infinite.
    np.copyto(product, np.negative(up), where=np.isinf(up) & np.isfinite(x))
    return product
