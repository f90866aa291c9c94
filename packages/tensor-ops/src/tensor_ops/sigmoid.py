"""Products with a logistic sigmoid, exact in both tails."""

from typing import Any

import numpy as np

__all__ = ["silu_derivative_terms", "silu_derivative_times", "silu_of"]

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


def silu_derivative_times(x: Array, factor: Array, out: Array | None = None) -> Array:
    """Return the derivative of `silu_of` at `x`, times `factor`.

    The result is in `out` if that is given, which may be any of the inputs. At minus infinity the
    derivative is -0.0, the limit.
    """
    deep = x < DEEP[x.dtype]
    tail = None
    if deep.any():
        finite = np.maximum(x[deep], np.finfo(x.dtype).min).astype(np.float64)
        # There the derivative is (1 + x) exp(x).
        tail = _with_exp(1 + finite, finite, factor[deep])
        _keep_infinities(tail, x[deep], factor[deep])
    sigmoid, rest = _sigmoid_and_rest(x)
    # One of infinity times zero is zero here.
    rest *= np.minimum(x, np.finfo(x.dtype).max)
    rest += 1
    sigmoid *= factor
    result = np.multiply(sigmoid, rest, out=out)
    if tail is not None:
        result[deep] = tail
    return result


def silu_derivative_terms(x: Array) -> Array:
    """Return the magnitudes of the terms of the derivative of `silu_of`, added up."""
    sigmoid, rest = _sigmoid_and_rest(x)
    terms: Array = sigmoid * (1 + np.minimum(abs(x), np.finfo(x.dtype).max) * rest)
    return terms


def _sigmoid_and_rest(x: Array) -> tuple[Array, Array]:
    """Return the sigmoid of `x` and that of ``-x``, which together are one."""
    power = np.exp(-np.abs(x))
    larger = 1 / (1 + power)
    smaller = power * larger
    below = x < 0
    return np.where(below, smaller, larger), np.where(below, larger, smaller)


def _tail(x: Array, up: Array | int) -> Array:
    """Return ``x * exp(x) * up`` in float64, in halves that stay normal if the product does."""
    finite = np.maximum(x, np.finfo(x.dtype).min).astype(np.float64)
    product = _with_exp(finite, finite, up)
    _keep_infinities(product, x, up)
    return product


def _with_exp(factor: Array, x: Array, other: Array | int) -> Array:
    """Return ``factor * exp(x) * other`` in float64."""
    half = np.exp(x / 2)
    product: Array = (factor * half) * (other * half)
    return product


def _keep_infinities(product: Array, x: Array, factor: Array | int) -> None:
    """Let what is negative, however small, keep an infinity infinite where `x` is finite."""
    np.copyto(product, np.negative(factor), where=np.isinf(factor) & np.isfinite(x))
