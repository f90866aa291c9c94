"""Products with a logistic sigmoid, exact in both tails."""

from typing import Any

import numpy as np

from tensor_ops.numerics.rounding import exp_and_exponent

__all__ = ["silu_derivative_terms_times", "silu_derivative_times", "silu_of"]

Array = np.ndarray[Any, Any]

# Below these, 1 + exp(-x) is exp(-x) to the last place, and not yet infinite.
DEEP = {np.dtype(np.float32): -80, np.dtype(np.float64): -700}
# Where exp is zero, even times the largest number twice.
END = -2200


def silu_of(x: Array, up: Array | None = None, out: Array | None = None) -> Array:
    """Return ``x / (1 + exp(-x))``, times `up` if it is given.

    The result is in `out` if that is given, which may be any of the inputs. Minus infinity gives
    -0.0, the limit.
    """
    deep = x < DEEP[x.dtype]
    tail = _tail_times(x[deep], 1 if up is None else up[deep]) if deep.any() else None
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


def silu_derivative_times(
    x: Array, factor: Array, out: Array | None = None, exponent: Array | int = 0
) -> Array:
    """Return the derivative of `silu_of` at `x`, times `factor` and two to the power `exponent`.

    The result is in `out` if that is given, which may be any of the inputs. At minus infinity the
    derivative is -0.0, the limit.
    """
    deep = x < DEEP[x.dtype]
    tail = None
    if deep.any():
        more = np.broadcast_to(exponent, x.shape)[deep]
        tail = _tail_times(x[deep], factor[deep], 1, more)
    sigmoid, rest = _sigmoid_and_rest(x)
    # One of infinity times zero is zero here.
    rest *= np.minimum(x, np.finfo(x.dtype).max)
    rest += 1
    sigmoid *= factor
    result = np.multiply(sigmoid, rest, out=out)
    if np.any(exponent):
        np.ldexp(result, exponent, out=result)
    if tail is not None:
        result[deep] = tail
    return result


def silu_derivative_terms_times(x: Array, factor: Array, exponent: Array | int = 0) -> Array:
    """Return the magnitudes of the terms of the derivative of `silu_of`, added up.

    They are times `factor` and two to the power `exponent`; all is of float64.
    """
    a = np.minimum(np.abs(x), -END)
    power, of_power = exp_and_exponent(-a)
    larger = 1 / (1 + np.ldexp(power, of_power))
    smaller = power * larger
    below = x < 0
    rest = np.where(below, larger, np.ldexp(smaller, of_power))
    terms = np.where(below, smaller, larger) * (1 + a * rest) * factor
    magnitudes: Array = np.ldexp(terms, np.where(below, of_power, 0) + exponent)
    return magnitudes


def _sigmoid_and_rest(x: Array) -> tuple[Array, Array]:
    """Return the sigmoid of `x` and that of ``-x``, which together are one."""
    power = np.exp(-np.abs(x))
    larger = 1 / (1 + power)
    smaller = power * larger
    below = x < 0
    return np.where(below, smaller, larger), np.where(below, larger, smaller)


def _tail_times(x: Array, factor: Array | int, addend: int = 0, exponent: Array | int = 0) -> Array:
    """Return ``(x + addend) * exp(x) * factor`` in float64, times two to the power `exponent`.

    It loses digits only if it is tiny itself.
    """
    near = np.maximum(x, END).astype(np.float64)
    power, of_power = exp_and_exponent(near)
    # At minus infinity it is zero, the limit. Elsewhere a power, however small, keeps an infinity
    # infinite.
    power *= np.where(np.isneginf(x), 0, 1)
    product = ((near + addend) * power) * factor
    result: Array = np.ldexp(product, of_power + exponent)
    return result
